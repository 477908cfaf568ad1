import re
import tomllib

import pytest
from perron_tests.errors import mentions
from perron_tests.pages import ROOT

from perron.errors import SettingsError
from perron.experiments import read_study
from perron.experiments.study import Trial, all_trials
from perron.training.recipe import Recipe, read_recipe, recipe_names, recipe_table

# Table 2 of the paper, completed from the authors' code.
TABLE_2 = {
    # hidden_dim, weight_decay, learning_rate, learning_rate_decay,
    # learning_rate_decay_steps, batch_size, min_batch_size, dropout, kind
    "yelp2013": (50, 1e-6, 1e-4, 0.9, 2000, 64, 32, 0.6, "document"),
    "yelp2014": (50, 1e-6, 1e-4, 0.9, 5000, 64, 16, 0.6, "document"),
    "imdb": (50, 1e-6, 1e-4, 0.9, 1000, 32, 32, 0.4, "document"),
    "sst1": (50, 1e-6, 3e-4, 0.95, 500, 128, 32, 0.6, "text"),
    "sst2": (50, 1e-6, 3e-4, 0.95, 500, 128, 16, 0.6, "text"),
    "snli": (30, 1e-20, 1e-4, 0.95, 20000, 128, 128, 0.2, "pair"),
}

NOT_IN_PAPER = ("demo", "imdb-25k", "sick")
WITHOUT_DATA = ("frozen", "own", "pretrained", "tune")


@pytest.mark.parametrize("name", TABLE_2)
def test_the_recipe_matches_the_paper(name):
    recipe = read_recipe(recipe_table(name))
    training, model = recipe.training, recipe.model
    assert (
        model.aggregator.hidden_dim,
        training.weight_decay,
        training.learning_rate,
        training.learning_rate_decay,
        training.learning_rate_decay_steps,
        training.batch_size,
        training.min_batch_size,
        model.embedding.dropout,
        model.kind,
    ) == TABLE_2[name]
    assert model.head.dropout == model.embedding.dropout
    assert (
        model.embedding.embedding_dim,
        model.encoder.hidden_dim,
        model.head.hidden_dim,
    ) == (300,) * 3
    assert (training.max_epochs, training.patience) == (50, 7)
    assert training.min_learning_rate == 1e-5
    assert recipe.text.min_count == 4
    assert recipe.text.max_words == (40 if model.kind == "document" else 50)


def test_the_demo_and_tuning_have_the_defaults_of_a_frozen_encoder():
    frozen, demo, tune = map(recipe_table, ("frozen", "demo", "tune"))
    assert demo == {**frozen, "data": {"format": "rotten-tomatoes"}}
    model = frozen["model"]
    unfrozen = {k: v for k, v in model["encoder"].items() if k != "freeze"}
    assert tune["model"] == {**model, "encoder": unfrozen}
    assert tune["text"] == frozen["text"]


def studies(folder):
    paths = sorted((ROOT / "studies" / folder).glob("*.toml"))
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.stem)


@studies("pooling")
def test_the_study_of_pooling_has_valid_settings_and_all_layers(path):
    study = read_study(str(path))
    trials = [trial for trial in all_trials(study) if trial.baseline is None]
    recipes = [trial.recipe() for trial in trials if not trial.seed]
    assert {recipe.model.encoder.layers for recipe in recipes} == {"last", "mix"}
    assert {recipe.training.learning_rate for recipe in recipes} == {3e-4, 1e-3, 3e-3}
    assert {recipe.model.kind for recipe in recipes} <= {"text", "pair"}


@studies("frozen")
def test_the_reference_of_a_study_of_defaults_is_the_default(path):
    study = read_study(str(path))
    recipe, frozen = (
        Trial(study, study.reference, 0, 0).recipe(),
        recipe_table("frozen"),
    )
    expected = read_recipe({**frozen, "data": {"format": "rotten-tomatoes"}})
    for key in ("encoder", "aggregator", "head"):
        assert getattr(recipe.model, key) == getattr(expected.model, key)
    changed = {"seed": recipe.training.seed}
    assert recipe.training == expected.training.model_copy(update=changed)


def test_all_recipes_are_listed():
    assert set(recipe_names()) == {*TABLE_2, *NOT_IN_PAPER, *WITHOUT_DATA}


@pytest.mark.parametrize("name", WITHOUT_DATA)
def test_recipes_without_data_only_lack_data(name):
    table = recipe_table(name)
    with pytest.raises(SettingsError, match="data"):
        read_recipe(table)
    recipe = read_recipe(table | {"data": {"format": "csv", "train": "texts.csv"}})
    assert read_recipe(tomllib.loads(recipe.to_toml())) == recipe
    # These recipes define every section except data.
    assert set(table) == {"vectors", "text", "model", "training"}


@pytest.mark.parametrize("name", [*TABLE_2, *NOT_IN_PAPER])
def test_settings_survive_a_round_trip(name):
    recipe = read_recipe(recipe_table(name))
    assert read_recipe(tomllib.loads(recipe.to_toml())) == recipe


def sst2(*overrides: str) -> Recipe:
    return read_recipe(recipe_table("sst2"), overrides, "sst2")


def test_any_setting_can_be_overridden():
    recipe = sst2(
        "training.seed=7",
        "training.learning_rate=1e-3",
        "model.aggregator.num_heads=2",
        "data.train=elsewhere.txt",
        'vectors=["a.txt", "b.txt"]',
        "text.case=lower",
    )
    assert recipe.training.seed == 7
    assert recipe.training.learning_rate == 1e-3
    assert recipe.model.aggregator.num_heads == 2
    assert recipe.model.aggregator.hidden_dim == 50
    assert recipe.data.train == "elsewhere.txt"
    assert recipe.vectors == ("a.txt", "b.txt")
    assert recipe.text.case == "lower"


def test_an_aggregator_or_encoder_can_be_given_by_name():
    recipe = sst2("model.aggregator=max", "model.encoder=none")
    assert recipe.model.aggregator.name == "max"
    assert recipe.model.encoder.name == "none"


INVALID = {
    "training.lr=1": ["sst2", "training.lr"],
    "training.batch_size=0": ["training.batch_size", 0],
    "training.batch_size=8": ["min_batch_size", 16, "batch_size", 8],
    "training.learning_rate=fast": ["training.learning_rate", "number"],
    "model.embedding.dropout=1": ["model.embedding", "dropout", 1],
    "model.aggregator=maximum": ["model.aggregator", "'maximum'"],
    "model.aggregator.rows=2": ["model.aggregator", "rows"],
    "model.kind=pair": ["model.kind", "'pair'", "data.text_pair"],
    "model.sentence_aggregator=max": ["sentence_aggregator", "kind", "'document'"],
    "data.format=xml": ["data.format", "sst", "xml"],
    "training.seed": ["training.seed", "KEY=VALUE"],
    ".seed=1": [".seed=1", "KEY=VALUE"],
    "training.seed.more=1": ["seed"],
    "nonsense.key=1": ["nonsense"],
}


@pytest.mark.parametrize("override", INVALID)
def test_an_invalid_override_is_an_error_that_names_it(override):
    with pytest.raises(SettingsError, match=mentions(*INVALID[override])):
        sst2(override)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.l2=0", "training.l2 is not.*mean training.weight_decay?"),
        ("training.lr=1", "training.lr is not.*mean training.learning_rate?"),
        ("training.warmup=1", "training.warmup is not.*mean training.warmup_ratio?"),
        ("lr=1", "lr is not.*mean training.learning_rate?"),
        ("training.batchsize=1", "training.batchsize.*mean training.batch_size?"),
        ("text.max_length=9", "text.max_length is not.*mean text.max_words?"),
        ("data.labels=a", "data.labels is not.*mean data.label?"),
        (
            "model.aggregator.heads=2",
            "model.aggregator.heads is not.*mean model.aggregator.num_heads?",
        ),
        (
            "model.dropout=0.1",
            "mean model.embedding.dropout.*or model.head.dropout?",
        ),
        ("text.zzz=1", "text.zzz is not a valid setting. Valid settings: case, "),
        ("training.batch_size=0", "training.batch_size must be at least 1, got 0."),
        ("training.learning_rate=0", "must be greater than 0, got 0."),
        ("training.ema_decay=1", "must be less than 1, got 1."),
        ("training.learning_rate_decay=2", "must be at most 1, got 2."),
        ("training.batch_size=many", "must be an integer, got 'many'."),
        ("training.batch_size=1.5", "must be an integer, got 1.5."),
        ("training.learning_rate=x", "must be a number, got 'x'."),
        ("training.precision=fp8", "must be 'auto', 'fp32' or 'bf16', got 'fp8'."),
        ("training=3", "training must be a table of settings, got 3."),
        ("vectors=3", "vectors must be a list, got 3."),
        ("data.stratify=maybe", "data.stratify must be true or false, got 'maybe'."),
        ("data.split=[0.5, 0.5]", "split must be three fractions.*got 0.5, 0.5."),
        ("model.aggregator={rank=1}", "model.aggregator.name is missing."),
    ],
)
def test_an_error_says_what_is_expected_or_meant(override, message):
    with pytest.raises(SettingsError) as error:
        sst2(override)
    pattern = "sst2: .*" + ".*".join(map(re.escape, message.split(".*")))
    assert re.match(pattern, str(error.value))


def test_an_invalid_recipe_is_an_error(tmp_path):
    with pytest.raises(SettingsError, match=mentions("'sst3'", "sst1", "sst2")):
        recipe_table("sst3")
    path = tmp_path / "broken.toml"
    path.write_text("[data\n")
    with pytest.raises(SettingsError, match=r"broken\.toml.*line 1"):
        recipe_table(str(path))


def test_settings_are_immutable():
    with pytest.raises(Exception, match="frozen"):
        sst2().training.seed = 1
