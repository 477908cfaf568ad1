"""Pair scores and their gradients, compared with plain broadcasting."""

from functools import partial

import numpy as np
import pytest
import torch
from perron_tests.graphs import DTYPE
from perron_tests.triton import DEVICE, with_triton
from torch.autograd import gradcheck

from perron.kernels import Backend, Kernels, pair_scores_torch, use
from perron.kernels.pair_scores_cpu import make_tiles, max_tile_work
from perron.pooling.pair_scores import (
    pair_scores,
    pair_scores_backward_op,
    pair_scores_op,
)


def blocked_kernels() -> dict[str, Kernels]:
    """Return the torch kernels with a memory limit that forces several blocks."""
    forward = partial(pair_scores_torch.forward, max_bytes=3000)
    backward = partial(pair_scores_torch.backward, max_bytes=3000)
    return {"pair_scores": Kernels(forward, backward)}


KERNELS = with_triton(
    {"compiled": "numba", "blocked": Backend("torch", blocked_kernels)}
)


@pytest.fixture(params=KERNELS)
def kernel(request):
    with use(KERNELS[request.param]):
        yield


def broadcast(x, w, mask, activation):
    a, b = x.unflatten(0, mask.shape).permute(2, 0, 3, 1, 4)
    hidden = getattr(torch, activation)(a.unsqueeze(-2) + b.unsqueeze(-3))
    pairs = (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(1)
    scores = (hidden * w[:, None, None]).sum(-1).masked_fill(~pairs, 0)
    return scores.masked_fill(~mask[:, None, :, None], torch.finfo(a.dtype).min)


def inputs(shape, dtype=DTYPE, scale=1.0):
    batch, heads, n, k = shape
    rows = (batch * n, 2, heads, k)
    tensors = [scale * torch.randn(s, dtype=dtype) for s in (rows, (heads, k))]
    mask = torch.rand(batch, n) < 0.7
    mask[:1] = False
    return [t.requires_grad_() for t in tensors], mask


SHAPES = [(4, 2, 6, 5), (3, 1, 1, 50), (9, 1, 20, 50), (2, 3, 7, 9), (0, 1, 3, 4)]
if DEVICE == "interpreter":
    SHAPES[1:3] = (3, 1, 1, 5), (2, 1, 18, 5)  # 50 units take seconds


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ragged", [False, True])
def test_agrees_with_broadcasting(kernel, shape, dtype, activation, ragged):
    tensors, mask = inputs(shape, dtype)
    grad = torch.randn(shape[0], shape[1], shape[2], shape[2], dtype=dtype)
    results = []
    for function in (pair_scores, broadcast):
        x, w = tensors
        if ragged and function is pair_scores:
            x = x[mask.flatten()]
        scores = function(x, w, mask, activation)
        results.append((scores, *torch.autograd.grad(scores, tensors, grad)))
    # float32: 50 terms, each accurate to 5 ulps
    tolerance = {"rtol": 1e-5, "atol": 2e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(results[0], results[1], **tolerance)


@pytest.mark.parametrize("threads", [2, 3])
def test_a_long_text_is_split_into_tiles(threads, four_threads):
    torch.set_num_threads(threads)
    tensors, mask = inputs((3, 2, 90, 50))
    mask[1] = True
    max_work = max_tile_work(mask.numpy(), tensors[1])
    tiles, work, _ = make_tiles(mask.numpy(), max_work, 100)
    assert work.sum() > 1_500_000 * threads  # enough work for all threads
    assert work.max() <= max(work.sum() / (4 * threads), 10 * 90 * 100)
    assert len(tiles) > 4 * threads
    results = []
    for function in (pair_scores, broadcast):
        scores = function(*tensors, mask, "tanh")
        grad = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64)
        grad = grad.view(scores.shape).masked_fill(~mask[:, None, :, None], 0)
        results.append((scores, *torch.autograd.grad(scores, tensors, grad)))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_infinity_and_nan_propagate(kernel, activation):
    a = torch.tensor([torch.inf, torch.nan, -torch.inf]).view(3, 1, 1)
    mask = torch.ones(3, 1, dtype=torch.bool)
    x = torch.stack([a, torch.zeros(3, 1, 1)], 1)
    scores = pair_scores(x, torch.ones(1, 1), mask, activation)
    torch.testing.assert_close(
        scores.flatten(), getattr(torch, activation)(a.flatten()), equal_nan=True
    )


@pytest.mark.skipif(bool(DEVICE), reason="gradcheck needs float64")
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradcheck(kernel, activation):
    tensors, mask = inputs((3, 2, 4, 3))
    assert gradcheck(lambda *t: pair_scores(*t, mask, activation), tensors)


def test_padding_is_never_read(kernel):
    (x, w), mask = inputs((4, 2, 6, 5))
    want = pair_scores(x, w, mask, "tanh")
    padding = ~mask.flatten()[:, None, None, None]
    poisoned = x.detach().masked_fill(padding, torch.nan).requires_grad_()
    got = pair_scores(poisoned, w, mask, "tanh")
    got.masked_fill(~mask[:, None, :, None], 0).sum().backward()
    torch.testing.assert_close(got, want)
    assert poisoned.grad.isfinite().all()


RNG = np.random.default_rng(0)
WIDE, LARGE = RNG.uniform(-40, 40, 100_000), RNG.uniform(-100, 100, 100_000)
NOISE = RNG.normal(size=100_000)
TANH_INPUTS = {
    "single word": (np.linspace(-12, 12, 100_001), 0),
    "tiny": (10.0 ** RNG.uniform(-30, 0, 100_000), 0),
    "two words": (3 * NOISE, 3 * NOISE[::-1]),
    "nearly opposite": (NOISE, -NOISE + 10.0 ** RNG.uniform(-9, 0, 100_000)),
    "far apart": (WIDE, NOISE - WIDE),
    "beyond the range of exp": (LARGE, NOISE - LARGE),
}


@pytest.mark.parametrize("name", TANH_INPUTS)
def test_tanh_is_accurate_to_five_ulps_in_float32(name):
    a, b = np.broadcast_arrays(*TANH_INPUTS[name])
    a, b = a.astype(np.float32), b.astype(np.float32)
    mask = torch.ones(len(a), 1, dtype=torch.bool)
    x = torch.from_numpy(np.stack([a, b], 1)).view(-1, 2, 1, 1)
    scores = pair_scores(x, torch.ones(1, 1), mask, "tanh").flatten().numpy()
    want = np.tanh(a.astype(np.float64) + b)
    ulp = np.spacing(abs(want).astype(np.float32))
    assert (abs(scores - want) <= 5 * ulp + 1e-14).all()


def test_a_text_beyond_the_range_of_exp_does_not_affect_others():
    (x, w), mask = inputs((3, 1, 9, 12), torch.float32)
    x = 10 * x.detach()
    mask[:] = True
    want = pair_scores(x, w, mask, "tanh")
    x[9 + 4, 0] = 1e4
    got = pair_scores(x, w, mask, "tanh")
    assert torch.equal(got[::2], want[::2])
    torch.testing.assert_close(got, broadcast(x, w, mask, "tanh"))


def test_the_hidden_layer_is_not_saved_for_backward():
    tensors, mask = inputs((4, 1, 60, 50), torch.float32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (saved.append(t.nbytes), t)[1], lambda t: t
    ):
        pair_scores(*tensors, mask, "tanh")
    assert sum(saved) < 4 * 60 * 60 * 50  # a quarter of a byte per hidden unit


@pytest.mark.parametrize("contiguous", [True, False])
def test_operators_pass_opcheck(contiguous):
    (x, w), mask = inputs((3, 2, 4, 5))
    if not contiguous:
        x = x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    torch.library.opcheck(pair_scores_op, (x, w, mask, "tanh"))
    plain = [t.detach() for t in (x, w)]
    torch.library.opcheck(
        pair_scores_backward_op, (torch.rand(3, 2, 4, 4).double(), *plain, mask, "relu")
    )


def test_second_derivative_raises_an_error(kernel):
    (x, w), mask = inputs((3, 2, 4, 5))
    scores = pair_scores(x, w, mask, "tanh")
    (grad,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="only once"):
        grad.sum().backward()
