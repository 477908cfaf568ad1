from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perron_tests.errors import mentions
from perron_tests.pipelines import small_pipeline

from perron.errors import DataError, SettingsError
from perron.hub import short_names
from perron.pipeline import load_all


def test_names_are_as_short_as_possible():
    assert short_names(["runs/demo"]) == ["demo"]
    assert short_names(["a/x", "b/x", "c/y"]) == ["a/x", "b/x", "y"]
    assert short_names([Path("a/1/x"), "b/1/x", "b/2/x"]) == ["a/1/x", "b/1/x", "2/x"]
    assert short_names(["a/x", "a/x/x"]) == ["a/x", "x/x"]


PATHS = st.lists(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join),
    min_size=1,
    max_size=6,
    unique=True,
)


@given(PATHS)
def test_names_are_unique_ends_of_the_paths(folders):
    names = short_names(folders)
    assert len(set(names)) == len(folders)
    for folder, name in zip(folders, names, strict=True):
        assert f"{Path(folder).resolve()}".endswith(f"/{name}")
        shorter = name.split("/")[1:]
        ends = [Path(other).resolve().parts[-len(shorter) :] for other in folders]
        assert not shorter or ends.count(tuple(shorter)) > 1


@pytest.mark.parametrize("other", ["runs/demo", "./runs/demo/", "runs/a/../demo"])
def test_a_repeated_folder_is_an_error(other):
    with pytest.raises(SettingsError, match=mentions("demo", "twice")):
        short_names(["runs/demo", other])


def test_several_models_are_loaded_in_order(tmp_path):
    for name, aggregator in (("one", "centrality"), ("two", "mean")):
        small_pipeline("text", aggregator).save_pretrained(tmp_path / name / "best")
    loaded = load_all([tmp_path / "two/best", str(tmp_path / "one/best")])
    records = [pipeline.explain("a film") for pipeline in loaded]
    assert [record.model.name for record in records] == ["two/best", "one/best"]
    assert [record.model.aggregator for record in records] == ["mean", "centrality"]


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        load_all([tmp_path / "nowhere"])
