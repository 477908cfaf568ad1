"""Mixes of the layers of a frozen encoder."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from perron.kernels import use
from perron.layers.basic import mix_layers


def make_inputs(layers, *shape, dtype=torch.float16):
    generator = torch.Generator().manual_seed(layers)
    states = torch.randn(layers, *shape, generator=generator).to(dtype)
    weights = torch.randn(layers, generator=generator).softmax(0)
    return weights.requires_grad_(), states


@pytest.mark.parametrize("backend", ["numba", "torch"])
class TestEveryBackend:
    def test_two_layers_by_hand(self, backend):
        weights = torch.tensor([0.25, 0.75], requires_grad=True)
        states = torch.stack([torch.full((1, 8), 4.0), torch.full((1, 8), -8.0)]).half()
        with use(backend):
            mixed = mix_layers(weights, states)
            mixed.sum().backward()
        assert mixed.tolist() == [[0.25 * 4 - 0.75 * 8] * 8]
        assert weights.grad.tolist() == [8 * 4, -8 * 8]

    # 2056 numbers per layer are two blocks of the kernel and a rest of eight.
    @pytest.mark.parametrize("shape", [(1, 8), (257, 8), (50, 48), (3, 5), (0, 8)])
    @pytest.mark.parametrize("layers", [1, 7])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_matches_numpy(self, backend, layers, shape, dtype):
        weights, states = make_inputs(layers, *shape, dtype=dtype)
        grad = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        with use(backend):
            mixed = mix_layers(weights, states)
            mixed.backward(grad)
        assert mixed.dtype == torch.float32
        x, w = states.double().numpy(), weights.detach().double().numpy()
        want = np.einsum("k,kij->ij", w, x)
        np.testing.assert_allclose(mixed.detach(), want, atol=1e-6, rtol=1e-5)
        want = np.einsum("ij,kij->k", grad.double().numpy(), x)
        np.testing.assert_allclose(weights.grad, want, atol=1e-4, rtol=1e-5)

    def test_subnormal_and_infinite_halves_are_converted(self, backend):
        row = [6e-8, -6e-8, 65504.0, torch.inf, -torch.inf, torch.nan, 0.0, -0.0]
        states = torch.tensor([[row]], dtype=torch.float16)
        with use(backend):
            mixed = mix_layers(torch.ones(1), states)
        torch.testing.assert_close(mixed, states[0].float(), equal_nan=True)

    def test_states_that_are_not_contiguous_give_the_same_mix(self, backend):
        weights, states = make_inputs(3, 4, 16)
        spread = states.transpose(0, 1).contiguous().transpose(0, 1)
        with use(backend):
            torch.testing.assert_close(
                mix_layers(weights, spread), mix_layers(weights, states)
            )


def test_states_that_need_a_gradient_get_one():
    weights, states = make_inputs(2, 2, 3, dtype=torch.float64)
    states.requires_grad_()
    assert gradcheck(mix_layers, (weights.detach().double().requires_grad_(), states))


def test_second_derivatives_are_refused():
    weights, states = make_inputs(2, 1, 8)
    loss = mix_layers(weights, states).square().sum()
    (grad,) = torch.autograd.grad(loss, weights, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
