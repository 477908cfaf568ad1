"""The Triton kernels of the pair scores, in addition to the tests in tests/pooling."""

import pytest
import torch
from perron_tests.triton import runs_triton, triton_kernels

from perron.kernels import pair_scores_torch

pytestmark = runs_triton

# Texts, words, heads, hidden units: below, at and above the sizes of tiles.
SHAPES = [(2, 5, 1, 3), (2, 17, 1, 18), (1, 1, 1, 1), (2, 16, 2, 16)]


def make_inputs(shape, is_packed, seed=0):
    """Return x, w, mask and a gradient; the first of several texts is empty."""
    rng = torch.Generator().manual_seed(seed)
    texts, words, heads, units = shape
    mask = torch.rand(texts, words, generator=rng) < 0.7
    mask[0] = texts == 1
    rows = int(mask.sum()) if is_packed else mask.numel()
    x = torch.randn(rows, 2, heads, units, generator=rng)
    if not is_packed:
        x.view(texts, words, 2, heads, units)[~mask] = torch.nan  # padding
    w = torch.randn(heads, units, generator=rng)
    return x, w, mask, torch.randn(texts, heads, words, words, generator=rng)


def finite(scores):
    return torch.where(scores < -1e30, -1e30, scores.double())


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_and_gradients_equal_those_of_torch(shape, is_packed, activation):
    kernels = triton_kernels("pair_scores")
    x, w, mask, grad = make_inputs(shape, is_packed)
    wide = (x.double(), w.double(), mask, activation)
    scores = kernels.forward(x, w, mask, activation)
    expected = pair_scores_torch.forward(*wide)
    torch.testing.assert_close(finite(scores), finite(expected), atol=1e-5, rtol=1e-5)
    found = kernels.backward(grad, x, w, mask, activation)
    want = pair_scores_torch.backward(grad.double(), *wide)
    for value, reference in zip(found, want, strict=True):
        torch.testing.assert_close(value.double(), reference, atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_undefined_state_stays_in_its_own_text(activation):
    kernels = triton_kernels("pair_scores")
    x, w, mask, grad = make_inputs((3, 6, 1, 4), is_packed=False)
    mask[:] = True
    x = x.nan_to_num()
    x.view(3, 6, 2, 1, 4)[1, 2] = torch.nan
    scores = kernels.forward(x, w, mask, activation)
    assert scores[1, 0, 2].isnan().all()
    assert scores[[0, 2]].isfinite().all()
    grad_x, _ = kernels.backward(grad, x, w, mask, activation)
    assert grad_x.view(3, 6, -1)[[0, 2]].isfinite().all()


def test_large_preactivations_saturate_without_overflow():
    kernels = triton_kernels("pair_scores")
    x = torch.tensor([1e4, -1e4]).view(2, 1, 1, 1).expand(2, 2, 1, 1).contiguous()
    mask, w = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 1)
    scores = kernels.forward(x, w, mask, "tanh")
    torch.testing.assert_close(scores[0, 0], torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
    grad_x, grad_w = kernels.backward(scores, x, w, mask, "tanh")
    assert grad_x.isfinite().all()
    assert grad_w.isfinite().all()


@pytest.mark.parametrize("shape", [(0, 3, 1, 2), (2, 0, 1, 2), (2, 3, 1, 0)])
def test_an_empty_batch_is_accepted(shape):
    kernels = triton_kernels("pair_scores")
    texts, words, heads, units = shape
    mask = torch.ones(texts, words, dtype=torch.bool)
    x, w = torch.randn(mask.numel(), 2, heads, units), torch.randn(heads, units)
    scores = kernels.forward(x, w, mask, "tanh")
    assert scores.shape == (texts, heads, words, words)
    assert not scores.isnan().any()
    grad_x, grad_w = kernels.backward(scores, x, w, mask, "tanh")
    assert not grad_x.any()
    assert not grad_w.any()
