"""Tests that every encoder must pass."""

from functools import partial

import pytest
import torch
from perron_tests.errors import mentions
from safetensors.torch import load, save

from perron.layers import BiLSTMEncoder, CNNEncoder, NoEncoder, TransformerEncoder

E = 6

BUILDERS = {
    "none": partial(NoEncoder, E),
    "bilstm": partial(BiLSTMEncoder, E, hidden_dim=4),
    "bilstm, 3 layers": partial(BiLSTMEncoder, E, hidden_dim=3, num_layers=3),
    "cnn": partial(CNNEncoder, E, kernel_sizes=(3, 4, 5), num_filters=8),
    "cnn, one word": partial(CNNEncoder, E, kernel_sizes=(1,), num_filters=24),
    "transformer": partial(
        TransformerEncoder, E, 8, num_layers=2, num_heads=2, dropout=0.0
    ),
}
LENGTHS = [4, 0, 1, 11, 12, 3]  # 11 and 12 are in one group, which has padding


@pytest.fixture(params=BUILDERS)
def name(request):
    return request.param


@pytest.fixture
def encoder(name):
    return BUILDERS[name]()


@pytest.fixture
def flat():
    states = torch.randn(sum(LENGTHS), E, generator=torch.Generator().manual_seed(0))
    return states, LENGTHS


@pytest.fixture
def padded(flat):
    states, lengths = flat
    texts = states.split(lengths)
    padded = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    return padded, mask


class TestEveryEncoder:
    def test_flat_and_padded_inputs_have_the_same_states(self, encoder, flat, padded):
        states, lengths = flat
        want = encoder(*padded)
        assert want.shape == (6, 12, encoder.out_dim)
        got = encoder(states, lengths=lengths)
        assert got.shape == (len(states), encoder.out_dim)
        torch.testing.assert_close(got, want[padded[1]])
        again = encoder(states, lengths=torch.tensor(lengths))
        assert torch.equal(again, got)

    @pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
    def test_masks_of_0_and_1_are_equivalent_to_bool(self, encoder, padded, dtype):
        states, mask = padded
        want = encoder(states, mask)
        assert torch.equal(encoder(states, mask.to(dtype)), want)

    def test_parameters_have_the_requested_device_and_dtype(self, name):
        encoder = BUILDERS[name](device="meta", dtype=torch.float64)
        for parameter in encoder.parameters():
            assert parameter.is_meta
            assert parameter.dtype == torch.float64

    def test_texts_in_a_batch_do_not_affect_each_other(self, encoder, flat):
        states, lengths = flat
        together = encoder(states, lengths=lengths).split(lengths)
        for words, want in zip(states.split(lengths), together, strict=True):
            torch.testing.assert_close(encoder(words.unsqueeze(0))[0], want)

    @pytest.mark.parametrize("garbage", [1e30, torch.nan, torch.inf])
    @pytest.mark.parametrize("training", [True, False])
    def test_values_at_padding_positions_have_no_effect(
        self, encoder, padded, garbage, training
    ):
        encoder.train(training)
        states, mask = padded
        filled = states.masked_fill(~mask.unsqueeze(-1), garbage)
        with torch.inference_mode(not training):  # torch has a separate fast path
            got, want = encoder(filled, mask)[mask], encoder(states, mask)[mask]
        assert torch.equal(got, want)

    def test_tokens_and_weights_have_a_gradient_and_padding_has_none(
        self, encoder, padded
    ):
        states, mask = padded
        states = states.masked_fill(~mask.unsqueeze(-1), torch.nan).requires_grad_()
        encoder(states, mask)[mask].square().sum().backward()
        assert (states.grad[~mask] == 0).all()
        assert states.grad.isfinite().all()
        assert (states.grad[mask] != 0).any(1).all()
        for parameter in encoder.parameters():
            assert parameter.grad.isfinite().all()
            assert (parameter.grad != 0).any()

    def test_flat_and_padded_have_the_same_gradients(self, name, flat, padded):
        gradients = []
        for states, options in (
            (flat[0], {"lengths": LENGTHS}),
            (padded[0], {"mask": padded[1]}),
        ):
            torch.manual_seed(1)
            encoder = BUILDERS[name]().double()
            states = states.double().requires_grad_()
            output = encoder(states, **options)
            tokens = output if output.ndim == 2 else output[padded[1]]
            tokens.square().sum().backward()
            grad = states.grad if output.ndim == 2 else states.grad[padded[1]]
            gradients.append([grad, *(p.grad for p in encoder.parameters())])
        torch.testing.assert_close(*gradients)

    def test_inputs_are_not_modified(self, encoder, flat, padded):
        before = [flat[0].clone(), padded[0].clone(), padded[1].clone()]
        encoder(flat[0], lengths=flat[1])
        encoder(*padded)
        for tensor, copy in zip([flat[0], *padded], before, strict=True):
            assert torch.equal(tensor, copy)
        assert flat[1] == [4, 0, 1, 11, 12, 3]

    def test_order_of_the_texts_in_a_batch_does_not_matter(self, encoder, flat):
        states, lengths = flat
        order = [3, 1, 5, 0, 4, 2]
        texts = states.split(lengths)
        mixed = torch.cat([texts[row] for row in order])
        sizes = [lengths[row] for row in order]
        got = encoder(mixed, lengths=sizes).split(sizes)
        want = encoder(states, lengths=lengths).split(lengths)
        for position, row in enumerate(order):
            torch.testing.assert_close(got[position], want[row])

    @pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
    def test_empty_texts_have_no_states(self, encoder, lengths):
        assert encoder(torch.zeros(0, E), lengths=lengths).shape == (0, encoder.out_dim)

    @pytest.mark.parametrize("shape", [(3, 0), (0, 4), (0, 0)])
    def test_empty_padded_batches_are_valid(self, encoder, shape):
        mask = torch.ones(shape, dtype=torch.bool)
        states = encoder(torch.zeros(*shape, E), mask)
        assert states.shape == (*shape, encoder.out_dim)

    @pytest.mark.parametrize("training", [True, False])
    def test_states_of_a_batch_of_empty_texts_are_finite(self, encoder, training):
        encoder.train(training)
        states = torch.randn(2, 3, E, requires_grad=True)
        output = encoder(states, torch.zeros(2, 3, dtype=torch.bool))
        output.sum().backward()
        assert output.isfinite().all()
        assert states.grad.isfinite().all()
        with torch.inference_mode():  # torch has a separate fast path
            assert encoder(states, torch.zeros(2, 3, dtype=torch.bool)).isfinite().all()

    @pytest.mark.parametrize(
        ("dtype", "tolerance"),
        # Eight bits of mantissa, through up to three layers.
        [(torch.bfloat16, 0.1), (torch.float16, 0.01), (torch.float64, 1e-5)],
    )
    def test_states_have_the_dtype_of_the_input(self, encoder, flat, dtype, tolerance):
        states, lengths = flat
        want = encoder(states, lengths=lengths)
        got = encoder.to(dtype)(states.to(dtype), lengths=lengths)
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), want, atol=tolerance, rtol=tolerance)

    def test_evaluation_equals_training_without_dropout(self, encoder, flat):
        states, lengths = flat
        want = encoder(states, lengths=lengths)
        with torch.inference_mode():
            got = encoder.eval()(states, lengths=lengths)
        torch.testing.assert_close(got, want)

    def test_state_survives_save_and_load(self, name, encoder, flat):
        states, lengths = flat
        other = BUILDERS[name]()
        other.load_state_dict(load(save(encoder.state_dict())))
        assert torch.equal(
            other(states, lengths=lengths), encoder(states, lengths=lengths)
        )

    @pytest.mark.parametrize(
        ("shape", "options", "parts"),
        [
            ((5, E), {}, ["(B, N, E)", (5, 6), "lengths"]),
            ((5, E), {"lengths": [2, 2]}, ["lengths", 4, 5]),
            ((1, 5, E), {"lengths": [1]}, ["states", (1, 5, 6), "lengths"]),
            ((2, E), {"lengths": [3, -1]}, ["lengths", -1, "text 1"]),
            ((2, E), {"lengths": torch.tensor([0.5, 1.5])}, ["lengths", "float32"]),
            (
                (2, E),
                {"lengths": [2], "mask": torch.ones(1, 2, dtype=torch.bool)},
                ["flat states", "mask"],
            ),
            (
                (2, 3, E),
                {"mask": torch.ones(2, 4, dtype=torch.bool)},
                ["mask", (2, 3), (2, 4)],
            ),
            ((2, 3, E), {"mask": torch.full((2, 3), 0.5)}, ["mask", 0.5, "float32"]),
            (
                (1, 3, E),
                {"mask": torch.tensor([[False, True, True]])},
                ["mask", "padding"],
            ),
        ],
    )
    def test_invalid_arguments_raise_an_error(self, encoder, shape, options, parts):
        with pytest.raises(ValueError, match=mentions(*parts)):
            encoder(torch.rand(shape), **options)


@pytest.mark.parametrize("name", [name for name in BUILDERS if name != "none"])
def test_a_text_depends_on_all_of_its_own_tokens_and_on_no_others(name, flat):
    states, lengths = flat
    encoder = BUILDERS[name]().double()
    states = states.double().requires_grad_()
    texts = encoder(states, lengths=lengths).split(lengths)
    starts = torch.tensor([0, *lengths]).cumsum(0)
    for text, size in enumerate(lengths):
        if not size:
            continue
        (grad,) = torch.autograd.grad(
            texts[text].square().sum(), states, retain_graph=True
        )
        is_used = grad.abs().sum(1) > 0
        assert is_used[starts[text] : starts[text + 1]].all()
        assert is_used.sum() == size
