import json

import pytest
from cli.conftest import TINY

from perron.cli.compare import split_names
from perron.errors import SettingsError
from perron.training import read_recipe, recipe_table
from perron.training.compare import variant


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
        tests = [100 * run["test_accuracy"] for run in runs]
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
    with pytest.raises(SettingsError, match="once"):
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
