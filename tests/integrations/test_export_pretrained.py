"""ONNX export of a model with a pretrained encoder."""

import numpy as np
import pytest
from perron_tests.exports import run_folder
from perron_tests.tiny_bert import write_tiny_bert
from perron_tests.training import tiny_table, write_texts

from perron import Pipeline
from perron.integrations.export import export_onnx
from perron.training import read_recipe
from perron.training.prepare import prepare

TEXTS = ["the film was unbelievable", "", "dull", "lovely, lovely and then some"]


@pytest.fixture
def pipeline(tmp_path):
    table = tiny_table(write_texts(tmp_path / "texts.csv", rows=40))
    table["model"] = {"encoder": f"hf:{write_tiny_bert(tmp_path / 'bert')}"}
    table["text"] = {"max_words": 30}
    prepared = prepare(read_recipe(table))
    return Pipeline(prepared.model, prepared.processor)


def test_onnxruntime_gives_the_same_probabilities(pipeline, tmp_path):
    export_onnx(pipeline, tmp_path / "out")
    actual = run_folder(tmp_path / "out", TEXTS)["probabilities"]
    np.testing.assert_allclose(actual, pipeline.predict_proba(TEXTS), atol=1e-5)
    longest = ["film " * 30]
    actual = run_folder(tmp_path / "out", longest)["probabilities"]
    np.testing.assert_allclose(actual, pipeline.predict_proba(longest), atol=1e-5)
