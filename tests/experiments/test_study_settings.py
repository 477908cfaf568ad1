import pytest
from perron_tests.errors import mentions

from perron.errors import SettingsError
from perron.experiments import read_study
from perron.experiments.study import Trial

MINIMAL = 'title = "x"\nrecipe = "sst2"\n[variants]\na = {}\n'


AGGREGATORS = """title = "aggregators"
recipe = "sst2"
grid = [
  [
    "training.learning_rate=1e-3",
    "model.head.dropout=0.5",
    "training.weight_decay=1e-6",
  ],
  [
    "training.learning_rate=5e-4",
    "model.head.dropout=0.5",
    "training.weight_decay=1e-6",
  ],
]
seeds = 5
[variants]
max = { set = ["model.aggregator=max"] }
convolution = { set = ["model.aggregator=max", "model.encoder=cnn"] }
"""


def write_study(folder, text):
    path = folder / "study.toml"
    path.write_text(text)
    return str(path)


def aggregators(folder):
    return write_study(folder, AGGREGATORS)


def test_the_last_override_of_a_setting_wins(tmp_path):
    path = write_study(
        tmp_path,
        """title = "x"
recipe = "sst2"
set = [
  "training.weight_decay=1",
  "training.max_grad_norm=1",
  "training.learning_rate_decay=0.1",
]
grid = [["training.weight_decay=2", "training.learning_rate_decay=0.2"]]
[variants]
a = { set = ["training.max_grad_norm=3"] }
b = {}
""",
    )
    training = Trial(read_study(path), "a", 0, 7).recipe().training
    assert (
        training.weight_decay,
        training.max_grad_norm,
        training.learning_rate_decay,
    ) == (2, 3, 0.2)
    assert training.seed == 7
    study = read_study(
        path, ["training.learning_rate_decay=0.5", "training.max_grad_norm=9"]
    )
    training = Trial(study, "a", 0, 7).recipe().training
    assert (
        training.weight_decay,
        training.max_grad_norm,
        training.learning_rate_decay,
    ) == (2, 3, 0.5)
    assert Trial(study, "a", 0, 7).command == (
        "perron train sst2 --set training.weight_decay=2 "
        "--set training.learning_rate_decay=0.5 --set training.max_grad_norm=3 "
        "--set training.seed=7"
    )


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("model.aggregator.hidden_dim=7", mentions("model.aggregator", "variant")),
        ("model.aggregator=mean", mentions("model.aggregator", "variant")),
        ("training.seed=3", mentions("training.seed", "seeds")),
    ],
)
def test_an_override_without_effect_is_an_error(setting, problem, tmp_path):
    with pytest.raises(SettingsError, match=problem):
        read_study(aggregators(tmp_path), [setting])


def test_an_override_applies_to_variants_that_do_not_set_it(tmp_path):
    study = read_study(aggregators(tmp_path), ["model.encoder.hidden_dim=7"])
    assert Trial(study, "max", 0, 0).recipe().model.encoder.hidden_dim == 7
    assert Trial(study, "convolution", 0, 0).recipe().model.encoder.name == "cnn"


def test_tuned_settings_have_their_effective_values(tmp_path):
    path = aggregators(tmp_path)
    study = read_study(path)
    assert study.tuned_settings("max", 1)[0] == "training.learning_rate=5e-4"
    overridden = read_study(path, ["training.learning_rate=7e-4"])
    assert "training.learning_rate=7e-4" in overridden.tuned_settings("max", 1)
    assert len(overridden.tuned_settings("max", 1)) == 3
    single = study.model_copy(update={"grid": study.grid[:1]})
    assert single.tuned_settings("max", 0) == []  # nothing to tune


def test_the_number_of_seeds_can_be_overridden(tmp_path):
    path = aggregators(tmp_path)
    study = read_study(path, seeds=2)
    assert {study.num_seeds(name) for name in study.variants} == {2}
    assert read_study(path).num_seeds("max") == 5


def test_the_command_reproduces_a_single_run(tmp_path, study):
    trial = Trial(study, "centrality", 1, 2)
    assert trial.command.startswith("perron train ")
    assert trial.command.endswith(
        "--set training.learning_rate=0.01 --set model.aggregator=centrality "
        "--set training.seed=2"
    )


def test_a_study_can_inherit_from_another(tmp_path):
    first = read_study(aggregators(tmp_path))
    (tmp_path / "more").mkdir()
    second = tmp_path / "more" / "second.toml"
    second.write_text('like = "../study.toml"\nseeds = 9\n')
    study = read_study(str(second))
    assert study == first.model_copy(update={"seeds": 9})
    third = tmp_path / "more" / "third.toml"
    third.write_text('like = "second.toml"\ntitle = "y"\n')
    assert read_study(str(third)) == study.model_copy(update={"title": "y"})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("title = 1", ["title"]),
        ("no toml", ["TOML"]),
        (MINIMAL + "b = { sets = [] }", ["variants.b.sets"]),
        ('reference = "c"\n' + MINIMAL, ["reference", "'c'"]),
        ('like = "nothing"\n' + MINIMAL, ["nothing'"]),
    ],
)
def test_invalid_studies_are_reported(tmp_path, text, parts):
    path = write_study(tmp_path, text)
    with pytest.raises(SettingsError, match=mentions(tmp_path, *parts)):
        read_study(path)


def test_the_error_for_an_unknown_study_names_the_folder_of_studies():
    folder = "papers/gong2019/studies"
    with pytest.raises(SettingsError, match=mentions("'sst2'", folder)):
        read_study("sst2")


def test_a_circular_reference_is_an_error(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('like = "study.toml"\n')
    with pytest.raises(SettingsError, match=mentions(path, "like")):
        read_study(str(path))
