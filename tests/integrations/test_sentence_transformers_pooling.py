"""The pooling modules on synthetic features in the format of ``Transformer``."""

import copy
import inspect
import json
import subprocess
import sys

import pytest
import torch
from perron_tests.errors import assert_mentions, mentions
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import DataCollatorWithFlattening

from perron import CentralityPool
from perron.errors import DataError, SettingsError
from perron.integrations.sentence_transformers import (
    AggregatorPooling,
    CentralityPooling,
)

LENGTHS = [4, 1, 6]
MODULES = {
    "max": lambda: AggregatorPooling(8, "max"),
    "mean": lambda: AggregatorPooling(8, "mean"),
    "self-attention": lambda: AggregatorPooling(8, "self-attention", num_queries=2),
    "intra-attention": lambda: AggregatorPooling(8, "intra-attention", hidden_dim=5),
    "dynamic-routing": lambda: AggregatorPooling(8, "dynamic-routing", num_capsules=2),
    "reverse routing": lambda: AggregatorPooling(8, "dynamic-routing", reverse=True),
    "centrality": lambda: CentralityPooling(8, hidden_dim=5),
    "two heads": lambda: CentralityPooling(
        8, num_heads=2, norm="l2", activation="relu"
    ),
    "bilinear": lambda: CentralityPooling(8, connectivity="bilinear"),
    "low rank": lambda: CentralityPooling(8, connectivity="low_rank", rank=3),
}


@pytest.fixture
def texts():
    """The token embeddings of three texts."""
    return [3 * torch.randn(length, 8) for length in LENGTHS]


@pytest.fixture(params=MODULES)
def module(request):
    return MODULES[request.param]()


def padded(texts, left=False):
    """Return features of a padded batch. The padding is NaN."""
    longest = max(map(len, texts))
    states = torch.full((len(texts), longest, 8), torch.nan)
    mask = torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        start = longest - len(text) if left else 0
        states[row, start : start + len(text)] = text
        mask[row, start : start + len(text)] = 1
    return {"token_embeddings": states, "attention_mask": mask}


def flat(texts):
    """Return flattened features, as used with flash attention."""
    collate = DataCollatorWithFlattening(
        return_seq_idx=True, return_flash_attn_kwargs=True, return_position_ids=True
    )
    features = collate([{"input_ids": [7] * len(text)} for text in texts])
    del features["labels"]
    return {**features, "token_embeddings": torch.cat(texts).unsqueeze(0)}


def test_every_layout_returns_the_embedding_of_each_text_alone(module, texts):
    alone = torch.cat([module.pool(text.unsqueeze(0)).vector for text in texts])
    for features in (padded(texts), padded(texts, left=True), flat(texts)):
        vectors = module(features)["sentence_embedding"]
        assert vectors.shape == (3, module.get_embedding_dimension())
        torch.testing.assert_close(vectors, alone)


def test_token_weights_are_the_same_in_every_layout(texts):
    module = CentralityPooling(8, num_heads=2)
    right = module(padded(texts))
    left = module(padded(texts, left=True))
    together = module(flat(texts))
    assert together["token_weights"].shape == (1, sum(LENGTHS))
    for output in (right, left):
        weights = output["token_weights"][output["attention_mask"].bool()]
        torch.testing.assert_close(weights, together["token_weights"].squeeze(0))
    torch.testing.assert_close(right["token_weights"].sum(1), torch.ones(3))


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("form", ["padded", "left", "flat"])
@pytest.mark.parametrize("prompt_length", [2, torch.tensor([2])])
def test_mean_pooling_matches_that_of_sentence_transformers(
    texts, form, include_prompt, prompt_length
):
    texts[1] = torch.randn(3, 8)  # longer than the prompt, or theirs divides by zero
    make = {"padded": padded, "left": lambda t: padded(t, left=True), "flat": flat}
    features = make[form](texts) | {"prompt_length": prompt_length}
    theirs = Pooling(8, "mean", include_prompt=include_prompt)
    # Theirs multiplies the padding by zero, so it must be finite.
    finite = features["token_embeddings"].nan_to_num()
    expected = theirs({**features, "token_embeddings": finite})
    ours = AggregatorPooling(8, "mean", include_prompt=include_prompt)
    torch.testing.assert_close(
        ours(features)["sentence_embedding"], expected["sentence_embedding"]
    )


def test_excluded_prompt_tokens_have_no_effect(module, texts):
    module.include_prompt = False
    alone = [module.pool(text[1:].unsqueeze(0)).vector for text in texts]
    for features in (padded(texts), padded(texts, left=True), flat(texts)):
        output = module({**features, "prompt_length": 1})
        torch.testing.assert_close(output["sentence_embedding"], torch.cat(alone))
        if "token_weights" in output:
            weights = output["token_weights"]
            assert weights.shape == output["token_embeddings"].shape[:2]
            assert weights.count_nonzero() == sum(LENGTHS) - 3


def test_a_text_with_only_a_prompt_has_a_zero_vector(module, texts):
    module.include_prompt = False
    for features in (padded(texts), flat(texts)):
        vectors = module({**features, "prompt_length": 1})["sentence_embedding"]
        assert vectors[1].count_nonzero() == 0
        assert vectors.isfinite().all()


def test_a_row_of_padding_has_a_zero_vector_and_finite_gradients(module, texts):
    features = padded(texts)
    features["token_embeddings"] = features["token_embeddings"].nan_to_num()
    features["token_embeddings"].requires_grad_()
    features["attention_mask"][1] = 0
    vectors = module(features)["sentence_embedding"]
    assert vectors[1].count_nonzero() == 0
    vectors.square().sum().backward()
    gradients = [p.grad for p in module.parameters()]
    for gradient in [features["token_embeddings"].grad, *gradients]:
        assert gradient.isfinite().all()
        assert gradient.count_nonzero() > 0


@pytest.mark.parametrize("include_prompt", [True, False])
def test_input_tensors_are_not_modified(module, texts, include_prompt):
    module.include_prompt = include_prompt
    for features in (padded(texts), flat(texts)):
        inputs = features | {"prompt_length": torch.tensor([1]), "modality": "text"}
        before = copy.deepcopy(inputs)
        output = module(dict(inputs))
        new = {"sentence_embedding", "token_weights"}
        assert set(output) - new == set(inputs)
        assert all(output[name] is inputs[name] for name in inputs)
        for name in ("modality", "max_length_q"):
            assert inputs.pop(name, None) == before.pop(name, None)
        torch.testing.assert_close(inputs, before, rtol=0, atol=0, equal_nan=True)


def test_a_mask_can_be_boolean_or_numeric_or_missing(texts):
    module = CentralityPooling(8)
    features = padded(texts)
    expected = module(dict(features))["sentence_embedding"]
    for dtype in (torch.bool, torch.int32, torch.float32):
        mask = features["attention_mask"].to(dtype)
        actual = module({**features, "attention_mask": mask})["sentence_embedding"]
        torch.testing.assert_close(actual, expected)
    unmasked = {"token_embeddings": texts[0].unsqueeze(0)}
    for features in (unmasked, {**unmasked, "attention_mask": None}):
        actual = module(dict(features))["sentence_embedding"]
        torch.testing.assert_close(actual, expected[:1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_preserved(module, texts, dtype):
    features = padded(texts)
    expected = module(dict(features))["sentence_embedding"]
    features["token_embeddings"] = features["token_embeddings"].to(dtype)
    actual = module.to(dtype)(features)["sentence_embedding"]
    assert actual.dtype == dtype
    # States and parameters are near 10 and have 8 bits each.
    torch.testing.assert_close(actual.float(), expected, rtol=0.05, atol=0.15)


def test_invalid_features_are_refused(texts):
    module = CentralityPooling(8)
    with pytest.raises(ValueError, match=mentions("token_embeddings", "Transformer")):
        module({"input_ids": torch.ones(1, 3)})
    features = padded(texts) | {"attention_mask": torch.ones(3, 9)}
    with pytest.raises(ValueError, match=mentions("mask", (3, 6))):
        module(features)
    with pytest.raises(ValueError, match=mentions("embed_dim", 9, 8)):
        CentralityPooling(9)(padded(texts))


def test_the_embedding_dimension_includes_all_heads():
    assert CentralityPooling(8).get_embedding_dimension() == 8
    assert CentralityPooling(8, num_heads=3).get_embedding_dimension() == 24
    module = AggregatorPooling(8, "self-attention", num_queries=2)
    assert module.get_embedding_dimension() == 16


def test_the_options_are_those_of_centrality_pool():
    own = inspect.signature(CentralityPooling).parameters
    pool = inspect.signature(CentralityPool).parameters
    excluded = {"embed_dim", "device", "dtype"}
    options = {name: p.default for name, p in pool.items() if name not in excluded}
    defaults = {name: p.default for name, p in own.items()}
    required = inspect.Parameter.empty
    assert defaults == {"embed_dim": required, "include_prompt": True, **options}


def test_centrality_pooling_equals_the_centrality_aggregator(texts):
    options = {"hidden_dim": 7, "num_heads": 2, "connectivity": "low_rank", "rank": 5}
    options |= {"norm": "l2", "activation": "relu"}
    ours = CentralityPooling(8, **options)
    same = AggregatorPooling(8, "centrality", **options)
    assert ours.settings == same.settings
    same.load_state_dict(ours.state_dict())
    features = padded(texts)
    torch.testing.assert_close(
        ours(dict(features))["sentence_embedding"],
        same(dict(features))["sentence_embedding"],
    )


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("centralty", {}, ["'max'", "'centrality'", "centralty"]),
        ("self-attention", {"num_heads": 2}, ["num_heads", "setting"]),
        ("mean", {"hidden_dim": 50}, ["hidden_dim", "setting"]),
        ("centrality", {"hidden_dim": 0}, ["hidden_dim", 1]),
        ("centrality", {"connectivity": "mpl"}, ["connectivity", '"mlp"', "'mpl'"]),
    ],
)
def test_invalid_options_are_refused(name, options, problem):
    with pytest.raises(SettingsError, match=mentions(*problem)):
        AggregatorPooling(8, name, **options)


@pytest.mark.parametrize("safe", [True, False])
def test_a_saved_module_pools_the_same_when_loaded(module, texts, tmp_path, safe):
    module.include_prompt = False
    module.save(str(tmp_path), safe_serialization=safe)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "model.safetensors",
    }
    torch.manual_seed(1)  # so that weights that are not loaded differ
    loaded = type(module).load(str(tmp_path), trust_remote_code=True, backend="torch")
    assert loaded.get_config_dict() == module.get_config_dict()
    features = padded(texts) | {"prompt_length": 1}
    torch.testing.assert_close(
        loaded(dict(features))["sentence_embedding"],
        module(dict(features))["sentence_embedding"],
        rtol=0,
        atol=0,
    )


def test_an_incomplete_or_modified_folder_is_refused(tmp_path):
    AggregatorPooling(8, "centrality").save(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())

    def change(**options):
        modified = config | {"aggregator": config["aggregator"] | options}
        (tmp_path / "config.json").write_text(json.dumps(modified))

    change(norm="l3")
    with pytest.raises(SettingsError, match=mentions("norm", "'sum'", "'l2'")):
        AggregatorPooling.load(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(config | {"format_version": 99}))
    with pytest.raises(DataError, match="newer version of Perron"):
        AggregatorPooling.load(str(tmp_path))
    change(hidden_dim=7)
    with pytest.raises(RuntimeError, match="size mismatch"):
        AggregatorPooling.load(str(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match=mentions(tmp_path, "model.safetensors")):
        AggregatorPooling.load(str(tmp_path))


def test_an_import_without_the_extra_names_the_extra():
    code = "import sys; sys.modules['sentence_transformers'] = None; " + (
        "import perron.integrations.sentence_transformers"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    message = run.stderr.splitlines()[-1]
    assert_mentions(message, "sentence_transformers", "pip install 'perron[hf]'")
