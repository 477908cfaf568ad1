"""The module on features made by hand, as the library's Transformer gives them."""

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
    """Return the token embeddings of three texts."""
    return [3 * torch.randn(length, 8) for length in LENGTHS]


@pytest.fixture(params=MODULES)
def module(request):
    return MODULES[request.param]()


def padded(texts, left=False):
    """Return features of a batch; under the padding lies what must not be read."""
    longest = max(map(len, texts))
    states = torch.full((len(texts), longest, 8), torch.nan)
    mask = torch.zeros(len(texts), longest, dtype=torch.long)
    for row, text in enumerate(texts):
        start = longest - len(text) if left else 0
        states[row, start : start + len(text)] = text
        mask[row, start : start + len(text)] = 1
    return {"token_embeddings": states, "attention_mask": mask}


def flat(texts):
    """Return features as they are with flash attention: all texts in one row."""
    collate = DataCollatorWithFlattening(
        return_seq_idx=True, return_flash_attn_kwargs=True, return_position_ids=True
    )
    features = collate([{"input_ids": [7] * len(text)} for text in texts])
    del features["labels"]
    return {**features, "token_embeddings": torch.cat(texts).unsqueeze(0)}


def test_every_layout_gives_each_text_what_it_gets_alone(module, texts):
    alone = torch.cat([module.pool(text.unsqueeze(0)).vector for text in texts])
    for features in (padded(texts), padded(texts, left=True), flat(texts)):
        vectors = module(features)["sentence_embedding"]
        assert vectors.shape == (3, module.get_embedding_dimension())
        torch.testing.assert_close(vectors, alone)


def test_tokens_weigh_the_same_in_every_layout(texts):
    module = CentralityPooling(8, num_heads=2)
    right = module(padded(texts))
    left = module(padded(texts, left=True))
    together = module(flat(texts))
    assert together["token_weights"].shape == (1, sum(LENGTHS))
    for found in (right, left):
        weights = found["token_weights"][found["attention_mask"].bool()]
        torch.testing.assert_close(weights, together["token_weights"].squeeze(0))
    torch.testing.assert_close(right["token_weights"].sum(1), torch.ones(3))


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("form", ["padded", "left", "flat"])
@pytest.mark.parametrize("prompt_length", [2, torch.tensor([2])])
def test_the_mean_is_that_of_the_library_with_prompts_and_without(
    texts, form, include_prompt, prompt_length
):
    texts[1] = torch.randn(3, 8)  # longer than the prompt: else theirs divides by zero
    make = {"padded": padded, "left": lambda t: padded(t, left=True), "flat": flat}
    features = make[form](texts) | {"prompt_length": prompt_length}
    theirs = Pooling(8, "mean", include_prompt=include_prompt)
    # Theirs multiplies what lies under the padding by zero.
    finite = features["token_embeddings"].nan_to_num()
    want = theirs({**features, "token_embeddings": finite})
    ours = AggregatorPooling(8, "mean", include_prompt=include_prompt)
    torch.testing.assert_close(
        ours(features)["sentence_embedding"], want["sentence_embedding"]
    )


def test_tokens_of_an_excluded_prompt_have_no_say(module, texts):
    module.include_prompt = False
    alone = [module.pool(text[1:].unsqueeze(0)).vector for text in texts]
    for features in (padded(texts), padded(texts, left=True), flat(texts)):
        found = module({**features, "prompt_length": 1})
        torch.testing.assert_close(found["sentence_embedding"], torch.cat(alone))
        if "token_weights" in found:
            before = found["token_embeddings"].shape[:2]
            assert found["token_weights"].shape == before
            assert found["token_weights"].count_nonzero() == sum(LENGTHS) - 3


def test_a_text_that_is_all_prompt_gets_a_zero_vector(module, texts):
    module.include_prompt = False
    for features in (padded(texts), flat(texts)):
        vectors = module({**features, "prompt_length": 1})["sentence_embedding"]
        assert vectors[1].count_nonzero() == 0
        assert vectors.isfinite().all()


def test_a_row_of_padding_gets_a_zero_vector_and_finite_gradients(module, texts):
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
def test_no_tensor_that_comes_in_is_changed(module, texts, include_prompt):
    module.include_prompt = include_prompt
    for features in (padded(texts), flat(texts)):
        given = features | {"prompt_length": torch.tensor([1]), "modality": "text"}
        before = copy.deepcopy(given)
        found = module(dict(given))
        written = {"sentence_embedding", "token_weights"}
        assert set(found) - written == set(given)
        assert all(found[name] is given[name] for name in given)
        for name in ("modality", "max_length_q"):
            assert given.pop(name, None) == before.pop(name, None)
        torch.testing.assert_close(given, before, rtol=0, atol=0, equal_nan=True)


def test_masks_may_be_numbers_or_booleans_or_missing(texts):
    module = CentralityPooling(8)
    features = padded(texts)
    want = module(dict(features))["sentence_embedding"]
    for dtype in (torch.bool, torch.int32, torch.float32):
        mask = features["attention_mask"].to(dtype)
        found = module({**features, "attention_mask": mask})["sentence_embedding"]
        torch.testing.assert_close(found, want)
    whole = {"token_embeddings": texts[0].unsqueeze(0)}
    for bare in (whole, {**whole, "attention_mask": None}):
        found = module(dict(bare))["sentence_embedding"]
        torch.testing.assert_close(found, want[:1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_out_as_it_came_in(module, texts, dtype):
    features = padded(texts)
    want = module(dict(features))["sentence_embedding"]
    features["token_embeddings"] = features["token_embeddings"].to(dtype)
    found = module.to(dtype)(features)["sentence_embedding"]
    assert found.dtype == dtype
    # Numbers near 10 with 8 bits each, both in the states and in the parameters.
    torch.testing.assert_close(found.float(), want, rtol=0.05, atol=0.15)


def test_features_that_do_not_fit_are_refused(texts):
    module = CentralityPooling(8)
    with pytest.raises(ValueError, match=mentions("token_embeddings", "Transformer")):
        module({"input_ids": torch.ones(1, 3)})
    features = padded(texts) | {"attention_mask": torch.ones(3, 9)}
    with pytest.raises(ValueError, match=mentions("mask", (3, 6))):
        module(features)
    with pytest.raises(ValueError, match=mentions("width", 9, 8)):
        CentralityPooling(9)(padded(texts))


def test_the_width_is_that_of_all_heads():
    assert CentralityPooling(8).get_embedding_dimension() == 8
    assert CentralityPooling(8, num_heads=3).get_embedding_dimension() == 24
    num_queries = AggregatorPooling(8, "self-attention", num_queries=2)
    assert num_queries.get_embedding_dimension() == 16


def test_its_options_are_those_of_the_pool():
    own = inspect.signature(CentralityPooling).parameters
    pool = inspect.signature(CentralityPool).parameters
    left_out = {"embed_dim", "device", "dtype"}
    options = {name: p.default for name, p in pool.items() if name not in left_out}
    found = {name: p.default for name, p in own.items()}
    required = inspect.Parameter.empty
    assert found == {"embed_dim": required, "include_prompt": True, **options}


def test_centrality_pooling_is_the_aggregator_of_that_name(texts):
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
def test_options_that_make_no_sense_are_refused(name, options, problem):
    with pytest.raises(SettingsError, match=mentions(*problem)):
        AggregatorPooling(8, name, **options)


@pytest.mark.parametrize("safe", [True, False])
def test_what_was_saved_pools_the_same(module, texts, tmp_path, safe):
    module.include_prompt = False
    module.save(str(tmp_path), safe_serialization=safe)
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.json",
        "model.safetensors",
    }
    torch.manual_seed(1)  # so that what is not loaded differs
    loaded = type(module).load(str(tmp_path), trust_remote_code=True, backend="torch")
    assert loaded.get_config_dict() == module.get_config_dict()
    features = padded(texts) | {"prompt_length": 1}
    torch.testing.assert_close(
        loaded(dict(features))["sentence_embedding"],
        module(dict(features))["sentence_embedding"],
        rtol=0,
        atol=0,
    )


def test_a_folder_that_is_not_whole_or_was_changed_is_refused(tmp_path):
    AggregatorPooling(8, "centrality").save(str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())

    def change(**options):
        changed = config | {"aggregator": config["aggregator"] | options}
        (tmp_path / "config.json").write_text(json.dumps(changed))

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


def test_without_the_extra_the_error_says_what_to_install():
    code = "import sys; sys.modules['sentence_transformers'] = None; " + (
        "import perron.integrations.sentence_transformers"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    told = run.stderr.splitlines()[-1]
    assert_mentions(told, "sentence_transformers", "pip install 'perron[hf]'")
