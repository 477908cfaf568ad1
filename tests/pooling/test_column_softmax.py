"""Compiled column softmax and exp, compared with torch and NumPy."""

import numpy as np
import pytest
import torch
from numba import njit
from torch.autograd import gradcheck, gradgradcheck

from perron.kernels.simd import exp, load, store
from perron.pooling.pair_scores import column_softmax


def masked_scores(texts, heads, n, dtype=torch.float64, scale=3.0):
    rng = torch.Generator().manual_seed(n)
    scores = scale * torch.randn(texts, heads, n, n, generator=rng, dtype=dtype)
    mask = torch.rand(texts, n, generator=rng) < 0.7
    mask[:1] = False
    lowest = torch.finfo(dtype).min
    return scores.masked_fill(~mask[:, None, :, None], lowest), mask


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 3, 1e4])
@pytest.mark.parametrize("n", [1, 2, 7, 8, 20, 33])
def test_softmax_agrees_with_torch_and_is_zero_on_padding(n, scale, dtype):
    scores, mask = masked_scores(4, 2, n, dtype, scale)
    scores.requires_grad_()
    pairs = (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(1)
    results = []
    for edges in (
        column_softmax(scores, mask),
        scores.softmax(-2).masked_fill(~pairs, 0),
    ):
        grad = torch.linspace(-1, 2, edges.numel(), dtype=dtype).view(edges.shape)
        grad = grad.masked_fill(~pairs, 0)
        results.append((edges, *torch.autograd.grad(edges, scores, grad)))
    torch.testing.assert_close(*results)


def test_first_and_second_derivatives():
    scores, mask = masked_scores(3, 2, 4)
    words = mask[:, None, None, :]

    def edges(scores):
        return column_softmax(scores, mask).masked_fill(~words, 0)

    assert gradcheck(edges, (scores.clamp_min(-1e3).requires_grad_(),))
    assert gradgradcheck(edges, (scores.clamp_min(-1e3).requires_grad_(),))


@pytest.mark.parametrize("invalid", [torch.nan, torch.inf])
def test_an_invalid_score_affects_only_its_column(invalid):
    scores, mask = masked_scores(3, 1, 9)
    mask[:] = True
    scores = scores.clamp_min(-5)
    want = column_softmax(scores, mask)
    scores[1, 0, 3, 4] = invalid
    got = column_softmax(scores, mask)
    assert got[1, 0, 3, 4].isnan()
    got[1, 0, :, 4] = want[1, 0, :, 4]
    assert torch.equal(got, want)


def test_a_score_of_minus_infinity_gives_a_zero_edge():
    scores = torch.zeros(1, 1, 3, 3)
    scores[0, 0, 1, 2] = -torch.inf
    edges = column_softmax(scores, torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(edges[0, 0, :, 2], torch.tensor([0.5, 0.0, 0.5]))


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (2, 1, 0, 0)])
def test_empty_scores_give_empty_edges(shape):
    scores = torch.zeros(shape, requires_grad=True)
    edges = column_softmax(scores, torch.ones(shape[0], shape[-1], dtype=torch.bool))
    edges.sum().backward()
    assert scores.grad.shape == shape


def test_exp_is_accurate_to_two_ulps():
    x = np.random.default_rng(0).uniform(-700, 700, 80_000)
    x[:8] = [0, -0.0, 1e-300, 1, -1, 0.34657359, 700, -700]
    got = np.empty_like(x)

    @njit
    def kernel(x, out):
        for k in range(0, len(x), 8):
            store(out, k, exp(load(x, k)))

    kernel(x, got)
    want = np.exp(x.astype(np.longdouble))
    assert (abs(got - want) <= 2 * np.spacing(want.astype(float))).all()
    kernel(np.full(8, np.nan), got)
    assert np.isnan(got[:8]).all()
