import json
import shlex
from io import StringIO

import pytest
from perron_tests.errors import assert_mentions, mentions
from perron_tests.studies import record
from perron_tests.training import TINY, write_texts
from rich.console import Console

from perron.cli.study import rich_table, split_names
from perron.errors import SettingsError
from perron.experiments.report import summarize
from perron.experiments.study import Study, Trial, aggregator_study
from perron.training import read_recipe, recipe_table
from perron.training.run import read_result


def test_compare_writes_a_table_of_aggregators_and_seeds(perron, texts, tmp_path):
    options = ["--data", texts, "--out", tmp_path, *TINY, "--set=training.max_epochs=2"]
    names = "centrality,self-attention mean"
    outcome = perron("compare", "--aggregators", names, "--seeds", 2, *options)
    assert outcome.status == 0
    rows = json.loads((tmp_path / "compare.json").read_text())
    assert [row["variant"] for row in rows] == names.replace(",", " ").split()
    for row in rows:
        results = [
            read_result(tmp_path / f"{row['variant']}-point0-seed{seed}")
            for seed in (0, 1)
        ]
        first, second = (result.test["accuracy"] for result in results)
        accuracy = row["test"]["accuracy"]
        assert accuracy["mean"] == pytest.approx((first + second) / 2)
        assert accuracy["deviation"] == pytest.approx(abs(first - second) / 2**0.5)
        assert (row["p_value"] is None) == (row["variant"] == "centrality")
    assert rows[1]["time_ratio"] == 1.0
    table = (tmp_path / "compare.md").read_text()
    assert "| centrality | 2 |" in table
    assert "| self-attention | 2 |" in table
    assert "time: relative to self-attention" in table
    assert (tmp_path / "compare.png").stat().st_size > 1000
    assert "Aggregators on texts" in outcome.out
    assert_mentions(" ".join(outcome.out.split()), "for other seeds and other texts")

    # Again with another seed: finished runs are not repeated.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")}
    outcome = perron("compare", "--aggregators", names, "--seeds", 3, *options)
    assert outcome.status == 0
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")}
    assert len(after) == 9
    assert all(after[path] == time for path, time in before.items())


def test_aggregator_names_may_include_settings():
    text = "centrality:num_heads=2,norm=l2, dynamic-routing:reverse=true max"
    names = ["centrality:num_heads=2,norm=l2", "dynamic-routing:reverse=true", "max"]
    assert split_names(text) == names
    with pytest.raises(SettingsError, match=mentions("max", "distinct")):
        split_names("max max")


def recipes(folder, recipe, *aggregators, seeds=1):
    """Return the settings of each aggregator for the last seed."""
    file = folder / "recipe.toml"
    file.write_text(recipe.to_toml())
    study = aggregator_study(recipe, str(file), aggregators, seeds, "title")
    return [Trial(study, name, 0, seeds - 1).recipe() for name in aggregators]


def test_a_variant_only_changes_the_aggregator_and_the_seed(tmp_path):
    recipe = read_recipe(recipe_table("snli"))
    centrality, other, reverse = recipes(
        tmp_path,
        recipe,
        "centrality",
        "self-attention",
        "dynamic-routing:reverse=true,num_capsules=4",
        seeds=4,
    )
    assert centrality.training.seed == 3
    training = recipe.training.model_copy(update={"seed": 3})
    assert centrality == recipe.model_copy(update={"training": training})
    assert other.model.aggregator.hidden_dim == 30  # the recipe's
    assert reverse.model.aggregator.reverse
    assert reverse.model.aggregator.num_capsules == 4
    with pytest.raises(SettingsError, match="sdpa"):
        recipes(tmp_path, recipe, "sdpa")
    with pytest.raises(SettingsError, match="head"):
        recipes(tmp_path, recipe, "centrality:head=2")


def test_an_aggregator_inherits_hidden_dim_if_it_has_that_option(tmp_path):
    recipe = read_recipe(recipe_table("snli"), ["model.aggregator.num_heads=2"])
    own, given, other, none = recipes(
        tmp_path,
        recipe,
        "centrality:norm=l2",
        "intra-attention:hidden_dim=7",
        "self-attention",
        "max",
    )
    assert (own.model.aggregator.num_heads, own.model.aggregator.norm) == (2, "l2")
    assert given.model.aggregator.hidden_dim == 7
    assert other.model.aggregator.hidden_dim == 30
    assert none.model.aggregator.name == "max"


def test_runs_with_other_settings_are_not_compared(perron, texts, tmp_path):
    options = ["--data", texts, "--out", tmp_path, "--seeds", 1, *TINY]
    options += ["--aggregators", "mean", "--set=training.max_epochs=1"]
    assert perron("compare", *options).status == 0
    outcome = perron("compare", *options, "--set=training.learning_rate=0.5")
    assert outcome.status == 2
    assert_mentions(outcome.err, "training.learning_rate", 0.03, 0.5)


def test_runs_on_other_data_are_not_compared(perron, tmp_path):
    options = ["--data", tmp_path / "texts.csv", "--out", tmp_path / "runs", *TINY]
    options += ["--aggregators", "mean", "--set=training.max_epochs=1"]
    write_texts(tmp_path / "texts.csv")
    assert perron("compare", *options, "--seeds", 1).status == 0
    write_texts(tmp_path / "texts.csv", rows=150)
    outcome = perron("compare", *options, "--seeds", 2)
    assert outcome.status == 1
    assert "bytes of data" in outcome.err


def test_compare_does_not_train_without_test_data(perron, texts, tmp_path):
    out = tmp_path / "runs" / "compared"
    options = ["--data", texts, "--split", "0.9,0.1,0", "--out", out, *TINY]
    outcome = perron("compare", "--aggregators", "mean", *options)
    assert outcome.status == 2
    assert_mentions(outcome.err, "test data")
    assert "epoch" not in outcome.err
    assert not list(tmp_path.iterdir())


def test_compare_supports_documents(perron, texts, tmp_path):
    options = ["--data", texts, "--documents", "--out", tmp_path, *TINY]
    options += ["--aggregators", "mean", "--seeds", 1, "--set=training.max_epochs=1"]
    assert perron("compare", *options).status == 0
    (settings,) = tmp_path.glob("*/settings.toml")
    assert 'kind = "document"' in settings.read_text()


def test_a_moved_folder_is_recognized(perron, texts, tmp_path):
    options = ["--data", texts, *TINY, "--set=training.max_epochs=1"]
    options += ["--aggregators", "max mean", "--seeds", 1]
    assert perron("compare", *options, "--out", tmp_path / "a").status == 0
    (tmp_path / "a").rename(tmp_path / "b")
    outcome = perron("compare", *options, "--out", tmp_path / "b")
    assert outcome.status == 0
    assert "perron train" not in outcome.err
    (line, _) = (tmp_path / "b" / "records.jsonl").read_text().splitlines()
    assert shlex.split(json.loads(line)["command"])[2] == str(
        tmp_path / "b/recipe.toml"
    )


def test_the_command_of_a_run_reproduces_it(perron, texts, tmp_path):
    options = ["--data", texts, *TINY, "--set=training.max_epochs=1"]
    options += ["--aggregators", "centrality:num_heads=2", "--seeds", 1]
    assert perron("compare", *options, "--out", tmp_path / "runs").status == 0
    record = json.loads((tmp_path / "runs" / "records.jsonl").read_text())
    _, *arguments = shlex.split(record["command"])
    assert perron(*arguments, "--out", tmp_path / "again").status == 0
    (first,) = (tmp_path / "runs").glob("*/settings.toml")
    assert (tmp_path / "again/settings.toml").read_text() == first.read_text()


def test_the_table_leaves_out_the_last_columns_in_a_narrow_terminal():
    study = Study(title="two", recipe="demo", variants={"mean": {}, "max": {}}, seeds=1)
    records = [record(name, 0, 0, 0.5, [1, 0, 1]) for name in study.variants]
    rows = summarize(study, records)
    names = [
        [column.header for column in rich_table(study, rows, width).columns]
        for width in (400, 40, 1)
    ]
    assert names[0][: len(names[1])] == names[1]
    assert len(names[0]) > len(names[1]) > len(names[2]) == 1
    console = Console(width=40, file=StringIO())
    console.print(rich_table(study, rows, 40))
    assert "…" not in console.file.getvalue()


def test_compare_includes_baselines(perron, tmp_path):
    texts = write_texts(tmp_path / "texts.csv", rows=200)
    options = ["--data", texts, "--out", tmp_path / "runs", *TINY]
    options += ["--seeds", 1, "--set=training.max_epochs=1"]
    options += ["--set=training.learning_rate=1e-8", "--aggregators", "max"]
    outcome = perron("compare", "--baselines", "tfidf", *options)
    assert outcome.status == 0
    rows = json.loads((tmp_path / "runs" / "compare.json").read_text())
    assert [row["variant"] for row in rows] == ["max", "tfidf + LR"]
    sentence = "The baseline tfidf + LR (100.0 % test accuracy) is ahead of max"
    assert sentence in " ".join(outcome.out.split())
    assert sentence in (tmp_path / "runs" / "compare.md").read_text()


def test_baselines_can_be_compared_alone(perron, tmp_path):
    texts = write_texts(tmp_path / "texts.csv", rows=100)
    options = ["--data", texts, "--out", tmp_path / "runs", *TINY]
    outcome = perron("compare", "--aggregators", "", "--baselines", "tfidf", *options)
    assert outcome.status == 0
    (row,) = json.loads((tmp_path / "runs" / "compare.json").read_text())
    assert row["variant"] == "tfidf + LR"


def test_unknown_baselines_are_errors(perron, tmp_path):
    texts = write_texts(tmp_path / "texts.csv")
    outcome = perron("compare", "--data", texts, "--baselines", "tfidf,bm25")
    assert outcome.status == 2
    assert_mentions(outcome.err, "--baselines", "bm25", "mean")
