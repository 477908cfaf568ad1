"""An exported classifier on the test sentences of SST-2."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from perron_tests.exports import run_folder
from perron_tests.models import small_config

from perron import Pipeline
from perron.integrations.export import export_onnx
from perron.models import build_model
from perron.text.encoding import TextProcessor
from perron.text.tokenizers import UNKNOWN, WordTokenizer


@pytest.fixture(scope="module")
def sentences():
    if "PERRON_DATA" not in os.environ:
        pytest.skip("needs PERRON_DATA, the folder of the real datasets")
    path = Path(os.environ["PERRON_DATA"], "sst/lines/stsa.binary.test")
    return [line.partition(" ")[2] for line in path.read_text().splitlines()]


def test_real_sentences_get_the_same_probabilities(sentences, tmp_path):
    words = sorted({word for sentence in sentences for word in sentence.split()})
    tokenizer = WordTokenizer.from_words([UNKNOWN, *words], "lower")
    config = small_config("text", "centrality", "bilstm", vocab_size=len(words) + 1)
    torch.manual_seed(0)
    model = build_model(config.model_copy(update={"max_words": 50}))
    with torch.no_grad():  # so that texts and weights differ by more than rounding
        model.head.layers[1].weight.mul_(8)
        model.aggregator.connectivity.score.mul_(30)
    pipeline = Pipeline(model, TextProcessor(tokenizer, "text", 50, 40))
    export_onnx(pipeline, tmp_path / "onnx")

    texts = [*sentences, "", "good"]
    assert len(sentences) == 1821
    batches = [
        run_folder(tmp_path / "onnx", texts[begin : begin + 256])["probabilities"]
        for begin in range(0, len(texts), 256)
    ]
    expected = pipeline.predict_proba(texts)
    assert expected.std(0).min() > 0.01
    np.testing.assert_allclose(np.concatenate(batches), expected, atol=1e-5)
