from pathlib import Path

import pytest

from perron.errors import SettingsError
from perron.experiments import read_study, study_names
from perron.experiments.runner import Trial
from perron.reproduction.paper import ACCURACIES, DATASETS

OURS = Path(__file__).parents[2] / "docs" / "results" / "studies"
LINES = 'title = "x"\nrecipe = "sst2"\n[variants]\na = {}\n'


def written(folder, text):
    path = folder / "study.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", study_names())
def test_every_run_of_the_packaged_studies_has_valid_settings(name):
    study = read_study(name)
    rows = set(study.variants)
    assert rows < set(ACCURACIES) if "phrases" in name else rows == set(ACCURACIES)
    for variant in study.variants:
        for point in range(len(study.grid)):
            recipe = Trial(study, variant, point, 4).recipe()
            assert recipe.training.seed == 4


def test_all_datasets_of_the_paper_have_a_study():
    assert set(DATASETS) <= set(study_names())


def test_settings_come_in_order_and_the_last_one_counts(tmp_path):
    path = written(
        tmp_path,
        """title = "x"
recipe = "sst2"
set = ["training.l2=1", "training.clip=1", "training.decay=0.1"]
grid = [["training.l2=2", "training.decay=0.2"]]
[variants]
a = { set = ["training.clip=3"] }
b = {}
""",
    )
    training = Trial(read_study(path), "a", 0, 7).recipe().training
    assert (training.l2, training.clip, training.decay) == (2, 3, 0.2)
    assert training.seed == 7
    study = read_study(path, ["training.decay=0.5", "training.clip=9"])
    training = Trial(study, "a", 0, 7).recipe().training
    assert (training.l2, training.clip, training.decay) == (2, 3, 0.5)
    told = Trial(study, "a", 0, 7).command
    assert told == (
        "perron train sst2 --set training.l2=2 --set training.decay=0.5 "
        "--set training.clip=3 --set training.seed=7"
    )


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("model.aggregator.hidden=7", "has no effect, as each variant"),
        ("model.aggregator=mean", "has no effect, as each variant"),
        ("training.seed=3", "a study has its own seeds"),
    ],
)
def test_what_no_run_would_follow_is_refused(setting, problem):
    with pytest.raises(SettingsError, match=problem):
        read_study("sst2", [setting])


def test_what_some_variants_set_themselves_can_be_set_for_the_others():
    study = read_study("sst2", ["model.encoder.hidden=7"])
    assert Trial(study, "max", 0, 0).recipe().model.encoder.hidden == 7
    assert Trial(study, "CNN-non-static", 0, 0).recipe().model.encoder.name == "cnn"


def test_what_was_chosen_is_told_as_it_was_run():
    study = read_study("sst2")
    assert study.tuned("max", 1)[0] == "training.learning_rate=5e-4"
    asked = read_study("sst2", ["training.learning_rate=7e-4"])
    assert "training.learning_rate=7e-4" in asked.tuned("max", 1)
    assert len(asked.tuned("max", 1)) == 3
    assert read_study("snli").tuned("max", 0) == []  # there was nothing to choose


def test_seeds_can_be_asked_for():
    study = read_study("sst2", seeds=2)
    assert {study.seeds_of(name) for name in study.variants} == {2}
    assert read_study("sst2").seeds_of("max") == 5


def test_the_command_does_the_run_alone(tmp_path, study):
    trial = Trial(study, "centrality", 1, 2)
    assert trial.command.startswith("perron train ")
    assert trial.command.endswith(
        "--set training.learning_rate=0.01 --set model.aggregator=centrality "
        "--set training.seed=2"
    )


def test_a_study_may_be_like_another(tmp_path):
    path = written(tmp_path, 'like = "sst2"\nseeds = 9\n')
    study = read_study(path)
    assert study.seeds == 9
    assert study.variants == read_study("sst2").variants
    beside = tmp_path / "beside.toml"
    beside.write_text('like = "study.toml"\ntitle = "y"\n')
    assert read_study(str(beside)) == study.model_copy(update={"title": "y"})


@pytest.mark.parametrize("path", sorted(OURS.glob("*.toml")), ids=lambda p: p.stem)
def test_every_run_of_our_own_studies_has_valid_settings(path):
    study = read_study(str(path))
    for variant in study.variants:
        for point in range(len(study.grid)):
            Trial(study, variant, point, 0).recipe()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title = 1", "title"),
        ("no toml", "is no TOML file"),
        (LINES + "b = { sets = [] }", "variants.b.sets: there is no such setting"),
        ('reference = "c"\n' + LINES, "there is no variant 'c'"),
        ('like = "nothing"\n' + LINES, "nothing', nor a study of that name"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, text, problem):
    path = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        read_study(path)
    assert problem in str(caught.value)


def test_a_circle_is_told(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('like = "study.toml"\n')
    with pytest.raises(SettingsError, match="is like this one itself"):
        read_study(str(path))
