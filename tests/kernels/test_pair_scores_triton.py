"""The Triton kernels of the pair scores, run by Triton's interpreter on CPU tensors.

The interpreter has to be selected before Triton is imported, so these tests run in a
separate process: without TRITON_INTERPRET=1, the first test starts that process.
"""

import os
import subprocess
import sys

import pytest
import torch

from perron.kernels import pair_scores_torch

pytest.importorskip("triton", reason="Triton is not installed (it needs Linux)")
IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
interpreted = pytest.mark.skipif(not IS_INTERPRETED, reason="runs in its own process")

# Texts, words, heads, hidden units: below, at and above the sizes of tiles.
SHAPES = [(2, 5, 1, 3), (3, 17, 2, 20), (1, 1, 1, 1), (2, 16, 3, 16)]


@pytest.mark.skipif(IS_INTERPRETED, reason="this is that process")
def test_kernels_pass_their_tests_in_the_interpreter():
    # Without jaxtyping, whose wrappers Triton cannot interpret.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.fixture(autouse=True)
def _uninitialized_memory_is_nan(monkeypatch):
    new_empty = torch.Tensor.new_empty

    def filled(*arguments, **options):
        tensor = new_empty(*arguments, **options)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch.Tensor, "new_empty", filled)


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


@interpreted
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_and_gradients_equal_those_of_torch(shape, is_packed, activation):
    from perron.kernels import pair_scores_triton

    x, w, mask, grad = make_inputs(shape, is_packed)
    wide = (x.double(), w.double(), mask, activation)
    scores = pair_scores_triton.forward(x, w, mask, activation)
    expected = pair_scores_torch.forward(*wide)
    torch.testing.assert_close(finite(scores), finite(expected), atol=1e-5, rtol=1e-5)
    found = pair_scores_triton.backward(grad, x, w, mask, activation)
    want = pair_scores_torch.backward(grad.double(), *wide)
    for value, reference in zip(found, want, strict=True):
        torch.testing.assert_close(value.double(), reference, atol=3e-5, rtol=1e-5)


@interpreted
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_undefined_state_stays_in_its_own_text(activation):
    from perron.kernels import pair_scores_triton

    x, w, mask, grad = make_inputs((3, 6, 1, 4), is_packed=False)
    mask[:] = True
    x = x.nan_to_num()
    x.view(3, 6, 2, 1, 4)[1, 2] = torch.nan
    scores = pair_scores_triton.forward(x, w, mask, activation)
    assert scores[1, 0, 2].isnan().all()
    assert scores[[0, 2]].isfinite().all()
    grad_x, _ = pair_scores_triton.backward(grad, x, w, mask, activation)
    assert grad_x.view(3, 6, -1)[[0, 2]].isfinite().all()


@interpreted
def test_large_preactivations_saturate_without_overflow():
    from perron.kernels import pair_scores_triton

    x = torch.tensor([1e4, -1e4]).view(2, 1, 1, 1).expand(2, 2, 1, 1).contiguous()
    mask, w = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 1)
    scores = pair_scores_triton.forward(x, w, mask, "tanh")
    torch.testing.assert_close(scores[0, 0], torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
    grad_x, grad_w = pair_scores_triton.backward(scores, x, w, mask, "tanh")
    assert grad_x.isfinite().all()
    assert grad_w.isfinite().all()


@interpreted
@pytest.mark.parametrize("shape", [(0, 3, 1, 2), (2, 0, 1, 2), (2, 3, 1, 0)])
def test_an_empty_batch_is_accepted(shape):
    from perron.kernels import pair_scores_triton

    texts, words, heads, units = shape
    mask = torch.ones(texts, words, dtype=torch.bool)
    x, w = torch.randn(mask.numel(), 2, heads, units), torch.randn(heads, units)
    scores = pair_scores_triton.forward(x, w, mask, "tanh")
    assert scores.shape == (texts, heads, words, words)
    assert not scores.isnan().any()
    grad_x, grad_w = pair_scores_triton.backward(scores, x, w, mask, "tanh")
    assert not grad_x.any()
    assert not grad_w.any()
