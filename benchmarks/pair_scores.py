"""How much faster are fused pair scores?

This benchmark runs a forward and backward pass of s_ij = w₂ᵀ tanh(a_i + b_j) in
float32, with K = 50 hidden units. Times are medians of interleaved repeats, also shown
relative to the fused kernel. The peak is the memory in MB that a separate process needs
in addition to its inputs. `torch.compile` compiles the broadcast version and needs a
C++ compiler.

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
    """Materialize the hidden layers of all pairs, the straightforward version."""
    a, b = x.unflatten(0, mask.shape).permute(2, 0, 3, 1, 4)
    hidden = torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3))
    return (hidden @ w[:, None, :, None]).squeeze(-1)


def with_backward(function: Callable[..., Tensor]) -> Callable[..., object]:
    """Return a function that runs forward and backward through autograd."""

    def run(x: Tensor, w: Tensor, mask: Tensor, grad: Tensor) -> object:
        leaves = [t.requires_grad_() for t in (x, w)]
        return torch.autograd.grad(function(*leaves, mask, "tanh"), leaves, grad)

    return run


def blocked(x: Tensor, w: Tensor, mask: Tensor, grad: Tensor) -> object:
    """Run forward and backward in plain torch with bounded memory."""
    x, w = x.detach(), w.detach()
    pair_scores_torch.forward(x, w, mask, "tanh")
    return pair_scores_torch.backward(grad, x, w, mask, "tanh")


METHODS = {
    "fused": with_backward(pair_scores),
    "broadcast": with_backward(broadcast),
    "blocked": blocked,
    "torch.compile": with_backward(torch.compile(broadcast, dynamic=False)),
}


def make_inputs(texts: int, words: int) -> tuple[Tensor, ...]:
    """Return x, w, the mask and the gradient of the scores."""
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(texts * words, 2, 1, HIDDEN, generator=rng)
    w = torch.randn(1, HIDDEN, generator=rng)
    mask = torch.ones(texts, words, dtype=torch.bool)
    return x, w, mask, torch.randn(texts, 1, words, words, generator=rng)


def measure(texts: int, words: int, budget: float) -> list[dict]:
    """Return a row for each method."""
    inputs = make_inputs(texts, words)
    calls = {name: partial(method, *inputs) for name, method in METHODS.items()}
    seconds = interleaved_medians(calls, repeats=15, budget=budget)
    return [
        {
            "method": name,
            "texts": texts,
            "words": words,
            "milliseconds": 1000 * time,
            "ratio": time / seconds["fused"],
            "peak MB": peak_megabytes(__file__, name, texts, words),
        }
        for name, time in seconds.items()
    ]


def conclusions(rows: list[dict]) -> list[str]:
    """Summarize the speedup and the memory saved."""
    by_shape = {(r["texts"], r["words"]): r for r in rows if r["method"] == "broadcast"}
    factors = ", ".join(
        f"{r['ratio']:.1f} at {texts} x {words}"
        for (texts, words), r in by_shape.items()
    )
    lines = [f"fused is faster than broadcast by a factor of {factors}"]
    for r in rows:
        if r["method"] == "fused" and (r["texts"], r["words"]) == (32, 200):
            ratio = by_shape[32, 200]["peak MB"] / r["peak MB"]
            lines.append(f"it needs 1/{ratio:.0f} of the memory at 32 x 200")
    return lines


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=20)
    if report.peak:
        run, texts, words = METHODS[report.peak[0]], *map(int, report.peak[1:])
        run(*make_inputs(2, 3))  # load the code
        inputs = make_inputs(texts, words)
        if report.peak[0] == "torch.compile":
            run(*inputs)
        print_peak(partial(run, *inputs))
        return
    for texts, words in SHAPES[:1] if report.quick else SHAPES:
        rows = measure(texts, words, report.budget)
        columns = {
            "method": "",
            "milliseconds": ".2f",
            "ratio": ".2f",
            "peak MB": ".1f",
        }
        report.add(f"{texts} x {words}", rows, columns)
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
