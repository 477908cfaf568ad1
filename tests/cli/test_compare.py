import json

import pytest
from perron_tests.errors import assert_mentions, mentions
from perron_tests.training import TINY, write_texts

from perron.cli.compare import split_names
from perron.errors import SettingsError
from perron.experiments.compare import variant
from perron.training import read_recipe, recipe_table


def test_aggregators_and_seeds_become_a_table(perron, texts, tmp_path):
    options = ["--data", texts, "--out", tmp_path, *TINY, "--set=training.max_epochs=2"]
    names = "centrality,self-attention mean"
    told = perron("compare", "--aggregators", names, "--seeds", 2, *options)
    assert told.status == 0
    lines = json.loads((tmp_path / "compare.json").read_text())
    assert [line["aggregator"] for line in lines] == names.replace(",", " ").split()
    for line in lines:
        runs = [
            json.loads(
                (tmp_path / f"{line['aggregator']}-{seed}/result.json").read_text()
            )
            for seed in (0, 1)
        ]
        tests = [100 * run["test"]["accuracy"] for run in runs]
        assert line["test_mean"] == pytest.approx(sum(tests) / 2)
        assert line["test_deviation"] == pytest.approx(
            abs(tests[0] - tests[1]) / 2**0.5
        )
        assert (line["p_value"] is None) == (line["aggregator"] == "centrality")
    assert lines[1]["time_ratio"] == 1.0
    table = (tmp_path / "compare.md").read_text()
    assert "| centrality | 2 |" in table
    assert (tmp_path / "compare.png").stat().st_size > 1000
    assert "self-attention" in told.out

    # Once more with another seed: what is done is not done again.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")}
    told = perron("compare", "--aggregators", names, "--seeds", 3, *options)
    assert told.status == 0
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")}
    assert len(after) == 9
    assert all(after[path] == time for path, time in before.items())


def test_names_may_have_settings():
    text = "centrality:heads=2,norm=l2, dynamic-routing:reverse=true max"
    names = ["centrality:heads=2,norm=l2", "dynamic-routing:reverse=true", "max"]
    assert split_names(text) == names
    with pytest.raises(SettingsError, match=mentions("max", "once")):
        split_names("max max")


def test_a_variant_changes_the_aggregator_and_the_seed_alone():
    recipe = read_recipe(recipe_table("snli"))
    other = variant(recipe, "self-attention", 3)
    assert other.model.aggregator.hidden == 30  # the recipe's
    assert other.training.seed == 3
    reverse = variant(recipe, "dynamic-routing:reverse=true,capsules=4", 0)
    assert reverse.model.aggregator.reverse
    assert reverse.model.aggregator.capsules == 4
    back = variant(other, "centrality", recipe.training.seed)
    assert back == recipe
    with pytest.raises(SettingsError, match="sdpa"):
        variant(recipe, "sdpa", 0)


def test_what_was_trained_otherwise_is_not_compared(perron, texts, tmp_path):
    options = ["--data", texts, "--out", tmp_path, "--seeds", 1, *TINY]
    options += ["--aggregators", "mean", "--set=training.max_epochs=1"]
    assert perron("compare", *options).status == 0
    told = perron("compare", *options, "--set=training.learning_rate=0.5")
    assert told.status == 2
    assert_mentions(told.err, "training.learning_rate", 0.03, 0.5)


def test_runs_that_were_tested_on_other_texts_are_not_compared(perron, tmp_path):
    options = ["--data", tmp_path / "texts.csv", "--out", tmp_path / "runs", *TINY]
    options += ["--aggregators", "mean", "--set=training.max_epochs=1"]
    write_texts(tmp_path / "texts.csv")
    assert perron("compare", *options, "--seeds", 1).status == 0
    write_texts(tmp_path / "texts.csv", rows=150)
    told = perron("compare", *options, "--seeds", 2)
    assert told.status == 1
    assert_mentions(told.err, "mean-1", "texts")


def test_without_test_data_nothing_is_trained(perron, texts, tmp_path):
    options = ["--data", texts, "--split", "0.9,0.1,0", "--out", tmp_path, *TINY]
    told = perron("compare", "--aggregators", "mean", *options)
    assert told.status == 2
    assert_mentions(told.err, "test data")
    assert "epoch" not in told.err
    assert not list(tmp_path.glob("*/settings.toml"))


def test_documents_can_be_compared(perron, texts, tmp_path):
    options = ["--data", texts, "--documents", "--out", tmp_path, *TINY]
    options += ["--aggregators", "mean", "--seeds", 1, "--set=training.max_epochs=1"]
    assert perron("compare", *options).status == 0
    assert 'kind = "document"' in (tmp_path / "mean-0" / "settings.toml").read_text()
