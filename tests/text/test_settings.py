import pytest
from perron_tests.errors import assert_mentions, mentions, problem_of
from pydantic import ValidationError

from perron.errors import SettingsError
from perron.text.formats import format_of
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
def test_a_key_that_does_not_apply_is_refused_by_name(key, value, format):
    given = {"format": format, key: value}
    if format not in ("imdb-25k", "rotten-tomatoes"):
        given["train"] = "train.file"
    with pytest.raises(ValidationError) as caught:
        DataSettings(**given)
    assert_mentions(problem_of(caught.value), key, format)


@pytest.mark.parametrize("format", ["sst", "stars", "rotten-tomatoes", "snli", "hub"])
def test_settings_written_in_full_can_be_read_again(format):
    given = {"train": "t"} if format != "rotten-tomatoes" else {}
    name = {"name": "some/set"} if format == "hub" else {}
    settings = DataSettings(format=format, **given, **name)
    assert DataSettings(**settings.model_dump()) == settings
    assert DataSettings.model_validate_json(settings.model_dump_json()) == settings


def test_the_format_implies_how_the_text_is_written():
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
def test_a_split_must_be_parts_of_one_with_rows_to_train_and_dev(split):
    with pytest.raises(ValidationError) as caught:
        DataSettings(format="csv", train="t.csv", split=split)
    assert_mentions(problem_of(caught.value), "split")


def test_a_split_next_to_given_files_is_refused():
    with pytest.raises(ValidationError, match=mentions("split", "dev", "test")):
        DataSettings(format="csv", train="t", test="u", split=(0.9, 0.1, 0))


def test_what_is_missing_is_named():
    with pytest.raises(ValidationError, match=r"\btrain\b"):
        DataSettings(format="csv")
    with pytest.raises(ValidationError, match=r"\bname\b"):
        DataSettings(format="hub", train="train")
    with pytest.raises(ValidationError, match=mentions("phrases", "dev")):
        DataSettings(format="sst", train="t", phrases=True)


def test_every_setting_is_described_and_unknown_ones_are_refused():
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
def test_the_extension_tells_the_format(name, format):
    assert format_of(name) == format


@pytest.mark.parametrize("name", ["a", "a.xlsx", "a.parquet.gz"])
def test_an_extension_that_says_nothing_is_refused_with_advice(name):
    with pytest.raises(
        SettingsError, match=mentions(name, "--data-format", "sst", "snli")
    ):
        format_of(name)
