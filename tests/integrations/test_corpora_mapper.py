"""`TextMapper`: batch types, columns, pickling and caching."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from datasets import Dataset
from datasets.fingerprint import Hasher
from perron_tests.errors import mentions
from perron_tests.pipelines import OTHERS, TEXTS, small_pipeline

import perron
from perron.errors import DataError, SettingsError
from perron.integrations.corpora import TextMapper

IDS = list(range(len(TEXTS)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "text"
    small_pipeline("text").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pair_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "pair"
    small_pipeline("pair").save_pretrained(folder)
    return folder


KINDS = {
    "lists": lambda columns: columns,
    "arrays": lambda columns: {
        name: np.array(values, dtype=object) for name, values in columns.items()
    },
    "pandas": pd.DataFrame,
    "arrow": pa.table,
    "record batch": pa.RecordBatch.from_pydict,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_any_type_gets_labels_and_probabilities(kind, folder):
    batch = KINDS[kind]({"id": IDS, "text": TEXTS})
    result = TextMapper(folder)(batch)
    assert type(result) is type(batch)
    pipeline = perron.load(folder)
    assert list(map(str, result["label"])) == pipeline.predict(TEXTS)
    column = result["probabilities"]
    is_arrow = isinstance(batch, pa.Table | pa.RecordBatch)
    probabilities = column.to_pylist() if is_arrow else list(column)
    assert list(probabilities[0]) == list(pipeline.labels)
    expected = pipeline.predict_proba(TEXTS)
    rows = [list(row.values()) for row in probabilities]
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    assert [int(str(number)) for number in result["id"]] == IDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_any_type_gets_vectors(kind, folder):
    result = TextMapper(folder, "encode")(KINDS[kind]({"text": TEXTS}))
    vectors = result["vector"]
    vectors = vectors.to_pylist() if hasattr(vectors, "to_pylist") else list(vectors)
    expected = perron.load(folder).encode(TEXTS)
    np.testing.assert_allclose(np.array(vectors), expected, rtol=1e-6)


@pytest.mark.parametrize("task", ["predict", "encode"])
@pytest.mark.parametrize("kind", ["lists", "pandas", "arrow"])
def test_an_empty_batch_also_gets_the_new_columns(kind, task, folder):
    mapper = TextMapper(folder, task)
    empty = {"text": pa.array([], pa.string())} if kind == "arrow" else {"text": []}
    result = mapper(KINDS[kind](empty))
    names = result.column_names if kind == "arrow" else list(result)
    assert names == ["text", *(field.name for field in mapper.new_fields)]
    if kind == "arrow":
        assert result.schema.field(1) == mapper.new_fields[0]


def test_pairs_are_read_from_two_columns(pair_folder):
    columns = {"text": TEXTS, "text_pair": OTHERS}
    result = TextMapper(pair_folder)(columns)
    assert result["label"] == perron.load(pair_folder).predict(TEXTS, OTHERS)
    named = TextMapper(pair_folder, text="a", text_pair="b")
    assert named({"a": TEXTS, "b": OTHERS})["label"] == result["label"]
    assert "vector" in TextMapper(pair_folder, "encode")({"text": TEXTS})


def test_a_pair_column_is_refused_unless_the_task_takes_pairs(folder, pair_folder):
    with pytest.raises(SettingsError, match=mentions("text_pair", "'b'", "model")):
        TextMapper(folder, text_pair="b")
    with pytest.raises(SettingsError, match=mentions("text_pair", "'b'", "encode")):
        TextMapper(pair_folder, "encode", text_pair="b")


def test_a_missing_column_is_named(folder):
    with pytest.raises(ValueError, match=mentions("'text'", "id", "review")):
        TextMapper(folder)({"id": [1], "review": ["fine"]})


@pytest.mark.parametrize("missing", [None, float("nan"), 3])
def test_a_value_that_is_not_a_string_is_named_by_column_and_row(missing, folder):
    frame = pd.DataFrame({"text": pd.Series(["fine", missing], dtype=object)})
    with pytest.raises(ValueError, match=mentions("'text'", "row 1", repr(missing))):
        TextMapper(folder)(frame)


def test_an_existing_column_is_never_overwritten(folder):
    batch = {"text": ["fine"], "label": [1]}
    with pytest.raises(ValueError, match=mentions("'label'", "--prefix")):
        TextMapper(folder)(batch)
    result = TextMapper(folder, prefix="predicted_")(batch)
    assert list(result) == [
        "text",
        "label",
        "predicted_label",
        "predicted_probabilities",
    ]
    assert result["label"] == [1]


def test_pretokenized_texts_are_split_only_on_whitespace(folder):
    def encode(text, **options):
        return TextMapper(folder, "encode", **options)({"text": [text]})["vector"][0]

    raw = encode("good. film")
    assert not np.allclose(raw, encode("good. film", pretokenized=True))
    np.testing.assert_allclose(raw, encode("good . film"))


def test_another_process_loads_the_model_once_at_its_first_batch(folder, tmp_path):
    mapper = TextMapper(folder)
    expected = mapper({"text": TEXTS})["label"]
    sent = pickle.dumps(mapper)
    assert len(sent) < 1000  # only settings, although the model is loaded
    (tmp_path / "sent").write_bytes(sent)
    code = (
        "import pickle, sys; from pathlib import Path\n"
        "from perron.integrations.corpora.mapper import load_once\n"
        "mapper = pickle.loads(Path(sys.argv[1]).read_bytes())\n"
        "assert load_once.cache_info().currsize == 0\n"
        "for _ in range(3): result = mapper({'text': sys.argv[2:]})\n"
        "assert load_once.cache_info().misses == 1\n"
        "print(*result['label'], sep='|')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "sent"), *TEXTS]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().split("|") == expected


def test_the_number_of_threads_changes_only_if_it_is_set(folder, four_threads):
    TextMapper(folder)({"text": ["fine"]})
    assert torch.get_num_threads() == 4
    TextMapper(folder, threads=1)({"text": ["fine"]})
    assert torch.get_num_threads() == 1


def test_a_folder_without_a_model_is_refused_immediately(tmp_path):
    with pytest.raises(DataError, match=mentions(tmp_path / "nothing")):
        TextMapper(tmp_path / "nothing")


def test_a_model_that_changed_in_the_meantime_is_refused(tmp_path):
    folder = tmp_path / "model"
    small_pipeline("text").save_pretrained(folder)
    mapper = TextMapper(folder)
    small_pipeline("text", "mean").save_pretrained(folder)
    with pytest.raises(DataError, match=mentions(folder, "model")):
        mapper({"text": ["fine"]})
    assert TextMapper(folder) != mapper


@pytest.mark.parametrize("processes", [None, 2])
def test_it_works_in_datasets_map(processes, folder):
    dataset = Dataset.from_dict({"id": IDS, "text": TEXTS})
    mapper = TextMapper(folder, threads=1)
    result = dataset.map(mapper, batched=True, batch_size=3, num_proc=processes)
    assert result["label"][:] == perron.load(folder).predict(TEXTS)
    assert result["id"][:] == IDS
    vectors = dataset.map(TextMapper(folder, "encode"), batched=True)
    expected = perron.load(folder).encode(TEXTS)
    np.testing.assert_allclose(vectors["vector"][:], expected, rtol=1e-6)


def test_the_same_settings_hit_the_cache_of_datasets(folder, tmp_path):
    Dataset.from_dict({"text": TEXTS}).save_to_disk(tmp_path / "saved")
    dataset = Dataset.load_from_disk(tmp_path / "saved")
    first = dataset.map(TextMapper(folder), batched=True)
    used = TextMapper(folder)
    used({"text": TEXTS})
    again = dataset.map(used, batched=True)
    assert again.cache_files == first.cache_files
    assert again.cache_files
    other = dataset.map(TextMapper(folder, batch_size=2), batched=True)
    assert other.cache_files != first.cache_files


def test_a_different_model_in_the_same_folder_changes_the_hash(tmp_path):
    folder = tmp_path / "model"
    small_pipeline("text").save_pretrained(folder)
    before = Hasher.hash(TextMapper(folder))
    assert Hasher.hash(TextMapper(folder)) == before
    small_pipeline("text", "mean").save_pretrained(folder)
    assert Hasher.hash(TextMapper(folder)) != before


def test_map_series_turns_each_series_into_a_frame(folder, pair_folder):
    mapper = TextMapper(folder)
    frames = list(mapper.map_series([pd.Series(TEXTS[:3]), pd.Series(TEXTS[3:])]))
    assert [len(frame) for frame in frames] == [3, len(TEXTS) - 3]
    result = pd.concat(frames)["label"].tolist()
    assert result == perron.load(folder).predict(TEXTS)
    pair_frames = TextMapper(pair_folder).map_series(
        [(pd.Series(TEXTS), pd.Series(OTHERS))]
    )
    expected = perron.load(pair_folder).predict(TEXTS, OTHERS)
    assert next(pair_frames)["label"].tolist() == expected
    assert TextMapper(folder, "encode").spark_type == "`vector` array<float>"
    assert mapper.spark_type.startswith("`label` string, `probabilities` struct<`")
