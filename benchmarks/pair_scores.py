"""What do the scores of all pairs cost, fused and otherwise?

Forward and backward of s_ij = w₂ᵀ tanh(a_i + b_j), float32, K = 50 hidden units. Times
are medians of interleaved repeats, also as a ratio to the fused kernel; the peak is the
megabytes that a process of its own needs above its inputs. `torch.compile` is that of
the broadcast, and needs a C++ compiler.

    python benchmarks/pair_scores.py [--json FILE] [--threads 2] [--budget 20] [--quick]
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from perron.kernels import pair_scores_torch
from perron.pooling.pair_scores import pair_scores
from timing import Report, interleaved_medians, peak_megabytes, print_peak

SHAPES = [(128, 20), (640, 25), (64, 50), (32, 200), (8, 400)]
HIDDEN = 50


def broadcast(x: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Hold the hidden layers of all pairs, as one would write it."""
    a, b = x.unflatten(0, mask.shape).permute(2, 0, 3, 1, 4)
    hidden = torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3))
    return (hidden @ w[:, None, :, None]).squeeze(-1)


def differentiated(function: Callable[..., Tensor]) -> Callable[..., object]:
    """Return a way that runs forward and backward by autograd."""

    def way(x: Tensor, w: Tensor, mask: Tensor, grad: Tensor) -> object:
        leaves = [t.requires_grad_() for t in (x, w)]
        return torch.autograd.grad(function(*leaves, mask, "tanh"), leaves, grad)

    return way


def in_blocks(x: Tensor, w: Tensor, mask: Tensor, grad: Tensor) -> object:
    """Run forward and backward in plain torch under a cap of memory."""
    x, w = x.detach(), w.detach()
    pair_scores_torch.forward(x, w, mask, "tanh")
    return pair_scores_torch.backward(grad, x, w, mask, "tanh")


WAYS = {
    "fused": differentiated(pair_scores),
    "broadcast": differentiated(broadcast),
    "in blocks": in_blocks,
    "torch.compile": differentiated(torch.compile(broadcast, dynamic=False)),
}


def make_inputs(texts: int, words: int) -> tuple[Tensor, ...]:
    """Return x, w, the mask and a gradient to the scores."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(texts * words, 2, 1, HIDDEN, generator=rng)
    w = torch.randn(1, HIDDEN, generator=rng)
    mask = torch.ones(texts, words, dtype=torch.bool)
    return x, w, mask, torch.randn(texts, 1, words, words, generator=rng)


def measure(texts: int, words: int, budget: float) -> list[dict]:
    """Return a row for each way."""
    inputs = make_inputs(texts, words)
    ways = {name: partial(way, *inputs) for name, way in WAYS.items()}
    seconds = interleaved_medians(ways, repeats=15, budget=budget)
    return [
        {
            "way": name,
            "texts": texts,
            "words": words,
            "milliseconds": 1000 * taken,
            "ratio": taken / seconds["fused"],
            "peak": peak_megabytes(__file__, name, texts, words),
        }
        for name, taken in seconds.items()
    ]


def conclusions(rows: list[dict]) -> list[str]:
    """Return what the question comes down to."""
    broadcast = {(r["texts"], r["words"]): r for r in rows if r["way"] == "broadcast"}
    times = ", ".join(
        f"{r['ratio']:.1f} at {texts} x {words}"
        for (texts, words), r in broadcast.items()
    )
    lines = [f"fused is faster than broadcast by {times}"]
    for r in rows:
        if r["way"] == "fused" and (r["texts"], r["words"]) == (32, 200):
            share = broadcast[32, 200]["peak"] / r["peak"]
            lines.append(f"and needs 1/{share:.0f} of its memory at 32 x 200")
    return lines


def main() -> None:
    """Measure and print."""
    report = Report(__doc__, budget=20)
    if report.peak:
        way, texts, words = WAYS[report.peak[0]], *map(int, report.peak[1:])
        way(*make_inputs(2, 3))  # code into memory
        inputs = make_inputs(texts, words)
        if report.peak[0] == "torch.compile":
            way(*inputs)
        print_peak(partial(way, *inputs))
        return
    for texts, words in SHAPES[:1] if report.quick else SHAPES:
        rows = measure(texts, words, report.budget)
        columns = {"way": "", "milliseconds": ".2f", "ratio": ".2f", "peak": ".1f"}
        report.add(f"{texts} x {words}", rows, columns)
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
