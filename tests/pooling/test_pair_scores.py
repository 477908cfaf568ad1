"""The fused scores are those of the obvious broadcast, and so are their gradients."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from perron.kernels import Backend, Kernels, pair_scores_torch, use
from perron.kernels.pair_scores_cpu import make_tiles, max_tile_work
from perron.pooling.pair_scores import (
    pair_scores,
    pair_scores_backward_op,
    pair_scores_op,
)


def in_blocks() -> dict[str, Kernels]:
    """Return the torch kernels with a limit so low that there are several blocks."""
    ways = (pair_scores_torch.forward, pair_scores_torch.backward)
    return {"pair_scores": Kernels(*(partial(way, max_bytes=3000) for way in ways))}


KERNELS = {"compiled": "numba", "in blocks": Backend("torch", in_blocks)}


@pytest.fixture(params=KERNELS)
def kernel(request):
    with use(KERNELS[request.param]):
        yield


def broadcast(x, w, mask, activation):
    a, b = x.unflatten(0, mask.shape).permute(2, 0, 3, 1, 4)
    hidden_dim = getattr(torch, activation)(a.unsqueeze(-2) + b.unsqueeze(-3))
    pairs = (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(1)
    scores = (hidden_dim * w[:, None, None]).sum(-1).masked_fill(~pairs, 0)
    return scores.masked_fill(~mask[:, None, :, None], torch.finfo(a.dtype).min)


def inputs(shape, dtype=torch.float64, scale=1.0):
    batch, heads, n, k = shape
    rows = (batch * n, 2, heads, k)
    tensors = [scale * torch.randn(s, dtype=dtype) for s in (rows, (heads, k))]
    mask = torch.rand(batch, n) < 0.7
    mask[:1] = False
    return [t.requires_grad_() for t in tensors], mask


SHAPES = [(4, 2, 6, 5), (3, 1, 1, 50), (9, 1, 20, 50), (2, 3, 7, 9), (0, 1, 3, 4)]


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("packed", [False, True])
def test_same_as_the_broadcast(kernel, shape, dtype, activation, packed):
    tensors, mask = inputs(shape, dtype)
    grad = torch.randn(shape[0], shape[1], shape[2], shape[2], dtype=dtype)
    found = []
    for function in (pair_scores, broadcast):
        x, w = tensors
        if packed and function is pair_scores:
            x = x[mask.flatten()]
        scores = function(x, w, mask, activation)
        found.append((scores, *torch.autograd.grad(scores, tensors, grad)))
    # float32: 50 terms, each right to 5 units of rounding
    tolerance = {"rtol": 1e-5, "atol": 2e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(found[0], found[1], **tolerance)


@pytest.mark.parametrize("threads", [2, 3])
def test_the_rows_of_one_long_text_are_shared_out(threads, four_threads):
    torch.set_num_threads(threads)
    tensors, mask = inputs((3, 2, 90, 50))
    mask[1] = True
    pieces, work, _ = make_tiles(
        mask.numpy(), max_tile_work(mask.numpy(), tensors[1]), 100
    )
    assert work.sum() > 1_500_000 * threads  # as many threads as there are
    assert work.max() <= max(work.sum() / (4 * threads), 10 * 90 * 100)
    assert len(pieces) > 4 * threads
    found = []
    for function in (pair_scores, broadcast):
        scores = function(*tensors, mask, "tanh")
        grad = torch.linspace(-1, 1, scores.numel(), dtype=torch.float64)
        grad = grad.view(scores.shape).masked_fill(~mask[:, None, :, None], 0)
        found.append((scores, *torch.autograd.grad(scores, tensors, grad)))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_infinite_and_undefined_units_stay_what_they_are(kernel, activation):
    a = torch.tensor([torch.inf, torch.nan, -torch.inf]).view(3, 1, 1)
    mask = torch.ones(3, 1, dtype=torch.bool)
    x = torch.stack([a, torch.zeros(3, 1, 1)], 1)
    scores = pair_scores(x, torch.ones(1, 1), mask, activation)
    torch.testing.assert_close(
        scores.flatten(), getattr(torch, activation)(a.flatten()), equal_nan=True
    )


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_gradcheck(kernel, activation):
    tensors, mask = inputs((3, 2, 4, 3))
    assert gradcheck(lambda *t: pair_scores(*t, mask, activation), tensors)


def test_what_is_not_in_use_is_never_read(kernel):
    (x, w), mask = inputs((4, 2, 6, 5))
    want = pair_scores(x, w, mask, "tanh")
    absent = ~mask.flatten()[:, None, None, None]
    poisoned = x.detach().masked_fill(absent, torch.nan).requires_grad_()
    got = pair_scores(poisoned, w, mask, "tanh")
    got.masked_fill(~mask[:, None, :, None], 0).sum().backward()
    torch.testing.assert_close(got, want)
    assert poisoned.grad.isfinite().all()


RNG = np.random.default_rng(0)
WIDE, LARGE = RNG.uniform(-40, 40, 100_000), RNG.uniform(-100, 100, 100_000)
NOISE = RNG.normal(size=100_000)
TANH_INPUTS = {
    "one word alone": (np.linspace(-12, 12, 100_001), 0),
    "tiny": (10.0 ** RNG.uniform(-30, 0, 100_000), 0),
    "two words": (3 * NOISE, 3 * NOISE[::-1]),
    "nearly opposite": (NOISE, -NOISE + 10.0 ** RNG.uniform(-9, 0, 100_000)),
    "wide apart": (WIDE, NOISE - WIDE),
    "beyond the range of exp": (LARGE, NOISE - LARGE),
}


@pytest.mark.parametrize("name", TANH_INPUTS)
def test_tanh_is_right_to_five_units_of_float32(name):
    a, b = np.broadcast_arrays(*TANH_INPUTS[name])
    a, b = a.astype(np.float32), b.astype(np.float32)
    mask = torch.ones(len(a), 1, dtype=torch.bool)
    x = torch.from_numpy(np.stack([a, b], 1)).view(-1, 2, 1, 1)
    scores = pair_scores(x, torch.ones(1, 1), mask, "tanh").flatten().numpy()
    want = np.tanh(a.astype(np.float64) + b)
    unit = np.spacing(abs(want).astype(np.float32))
    assert (abs(scores - want) <= 5 * unit + 1e-14).all()


def test_a_text_beyond_the_range_of_exp_leaves_its_neighbors_alone():
    (x, w), mask = inputs((3, 1, 9, 12), torch.float32)
    x = 10 * x.detach()
    mask[:] = True
    want = pair_scores(x, w, mask, "tanh")
    x[9 + 4, 0] = 1e4
    got = pair_scores(x, w, mask, "tanh")
    assert torch.equal(got[::2], want[::2])
    torch.testing.assert_close(got, broadcast(x, w, mask, "tanh"))


def test_the_hidden_layer_is_never_held():
    tensors, mask = inputs((4, 1, 60, 50), torch.float32)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (saved.append(t.nbytes), t)[1], lambda t: t
    ):
        pair_scores(*tensors, mask, "tanh")
    assert sum(saved) < 4 * 60 * 60 * 50  # a fourth of a byte for each hidden unit


@pytest.mark.parametrize("turned", [False, True])
def test_the_operators_satisfy_torchs_own_checks(turned):
    (x, w), mask = inputs((3, 2, 4, 5))
    if turned:
        x = x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
    torch.library.opcheck(pair_scores_op, (x, w, mask, "tanh"))
    plain = [t.detach() for t in (x, w)]
    torch.library.opcheck(
        pair_scores_backward_op, (torch.rand(3, 2, 4, 4).double(), *plain, mask, "relu")
    )


def test_the_second_derivative_is_refused(kernel):
    (x, w), mask = inputs((3, 2, 4, 5))
    scores = pair_scores(x, w, mask, "tanh")
    (slope,) = torch.autograd.grad(scores.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="twice"):
        slope.sum().backward()
