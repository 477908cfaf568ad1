import pytest
from perron_tests.errors import assert_mentions, first_problem, mentions
from pydantic import ValidationError

from perron.errors import SettingsError
from perron.text.formats import infer_format
from perron.text.settings import DataSettings


@pytest.mark.parametrize(
    ("key", "value", "format"),
    [
        ("binary", True, "csv"),
        ("phrases", True, "lines"),
        ("name", "some/set", "csv"),
        ("text", "review", "sst"),
        ("text", "premise", "snli"),
        ("text_pair", "other", "stars"),
        ("label", "stars", "lines"),
        ("dev", "dev.csv", "imdb-25k"),
        ("split_seed", 1, "rotten-tomatoes"),
        ("split", (0.5, 0.5, 0.0), "rotten-tomatoes"),
    ],
)
def test_a_setting_that_does_not_apply_to_the_format_is_rejected(key, value, format):
    options = {"format": format, key: value}
    if format not in ("imdb-25k", "rotten-tomatoes"):
        options["train"] = "train.file"
    with pytest.raises(ValidationError) as caught:
        DataSettings(**options)
    assert_mentions(first_problem(caught.value), key, format)


@pytest.mark.parametrize("format", ["sst", "stars", "rotten-tomatoes", "snli", "hub"])
def test_saved_settings_can_be_loaded(format):
    options = {"train": "t"} if format != "rotten-tomatoes" else {}
    name = {"name": "some/set"} if format == "hub" else {}
    settings = DataSettings(format=format, **options, **name)
    assert DataSettings(**settings.model_dump()) == settings
    assert DataSettings.model_validate_json(settings.model_dump_json()) == settings


def test_formats_have_default_settings():
    sst, stars, snli = (DataSettings(format=f, train="t") for f in FORMATS)
    assert (sst.pretokenized, stars.pretokenized, snli.pretokenized) == (
        True,
        True,
        False,
    )
    assert stars.sentence_separator == "<sssss>"
    assert (snli.text, snli.text_pair, snli.label) == (
        "sentence1",
        "sentence2",
        "gold_label",
    )
    assert DataSettings(format="rotten-tomatoes").pretokenized
    assert not DataSettings(format="imdb-25k").pretokenized
    assert not DataSettings(format="sst", train="t", pretokenized=False).pretokenized
    assert DataSettings(format="hub", name="some/set").train == "train"


FORMATS = ("sst", "stars", "snli")


@pytest.mark.parametrize(
    "split",
    [
        (0.8, 0.1, 0.2),
        (1.2, -0.1, -0.1),
        (0.0, 0.5, 0.5),
        (0.9, 0.0, 0.1),
        (0.5, 0.5, float("nan")),
    ],
)
def test_a_split_must_be_fractions_with_rows_for_train_and_dev(split):
    with pytest.raises(ValidationError) as caught:
        DataSettings(format="csv", train="t.csv", split=split)
    assert_mentions(first_problem(caught.value), "split")


def test_a_split_with_a_test_file_is_rejected():
    with pytest.raises(ValidationError, match=mentions("split", "dev", "test")):
        DataSettings(format="csv", train="t", test="u", split=(0.9, 0.1, 0))


def test_the_error_for_a_missing_setting_names_it():
    with pytest.raises(ValidationError, match=r"\btrain\b"):
        DataSettings(format="csv")
    with pytest.raises(ValidationError, match=r"\bname\b"):
        DataSettings(format="hub", train="train")
    with pytest.raises(ValidationError, match=mentions("phrases", "dev")):
        DataSettings(format="sst", train="t", phrases=True)


def test_every_setting_has_a_description_and_unknown_ones_are_rejected():
    assert all(f.description for f in DataSettings.model_fields.values())
    with pytest.raises(ValidationError, match="color"):
        DataSettings(format="csv", train="t", color="red")


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "csv"),
        ("a.tsv.gz", "tsv"),
        ("a.JSON", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.parquet", "parquet"),
        ("a.txt", "lines"),
        ("yelp.txt.ss", "stars"),
    ],
)
def test_the_format_is_inferred_from_the_extension(name, format):
    assert infer_format(name) == format


@pytest.mark.parametrize("name", ["a", "a.xlsx", "a.parquet.gz"])
def test_the_error_for_an_unknown_extension_lists_formats(name):
    with pytest.raises(
        SettingsError, match=mentions(name, "--data-format", "sst", "snli")
    ):
        infer_format(name)
