"""What do the scores of all pairs cost, fused and otherwise?

Forward and backward of s_ij = w₂ᵀ tanh(a_i + b_j), float32, K = 50 hidden units. Times
are ratios to the fused kernel, medians of interleaved repeats; the peak is what a
process of its own needs above its inputs.

    python benchmarks/pair_scores.py [--threads 2] [--budget 20] [--compile]
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from perron.pooling.pair_scores import (
    backward_in_blocks,
    forward_in_blocks,
    pair_scores,
)
from timing import interleaved_medians, machine

SHAPES = [(128, 20), (640, 25), (64, 50), (32, 200), (8, 400)]
HIDDEN = 50


def broadcast(a: Tensor, b: Tensor, w: Tensor, mask: Tensor, activation: str) -> Tensor:
    """Hold the hidden layers of all pairs, as one would write it."""
    a, b = (t.unflatten(0, mask.shape).transpose(1, 2) for t in (a, b))
    hidden = torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3))
    return (hidden @ w[:, None, :, None]).squeeze(-1)


def differentiated(function: Callable[..., Tensor]) -> Callable[..., object]:
    """Return a way that runs forward and backward by autograd."""

    def way(a: Tensor, b: Tensor, w: Tensor, mask: Tensor, grad: Tensor) -> object:
        leaves = [t.requires_grad_() for t in (a, b, w)]
        return torch.autograd.grad(function(*leaves, mask, "tanh"), leaves, grad)

    return way


def in_blocks(a: Tensor, b: Tensor, w: Tensor, mask: Tensor, grad: Tensor) -> object:
    """Run forward and backward in plain torch under a cap of memory."""
    a, b, w = (t.detach() for t in (a, b, w))
    forward_in_blocks(a, b, w, mask, "tanh")
    return backward_in_blocks(grad, a, b, w, mask, "tanh")


WAYS = {
    "fused": differentiated(pair_scores),
    "broadcast": differentiated(broadcast),
    "in blocks": in_blocks,
}


def make_inputs(texts: int, words: int) -> tuple[Tensor, ...]:
    """Return a, b, w, the mask and a gradient to the scores."""
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, texts * words, 1, HIDDEN, generator=rng)
    w = torch.randn(1, HIDDEN, generator=rng)
    mask = torch.ones(texts, words, dtype=torch.bool)
    return a, b, w, mask, torch.randn(texts, 1, words, words, generator=rng)


def peak_megabytes(name: str, texts: int, words: int) -> float:
    """Return what a fresh process needs above its inputs and its compiled code."""
    command = [sys.executable, __file__, "--peak", name, str(texts), str(words)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def print_peak(name: str, texts: int, words: int) -> None:
    """Run one way once in this process and print by how much its peak rose."""
    WAYS[name](*make_inputs(2, 3))  # code into memory
    inputs = make_inputs(texts, words)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far (Linux)
    before = kilobytes("VmRSS")
    WAYS[name](*inputs)
    print((kilobytes("VmHWM") - before) / 1000)


def kilobytes(field: str) -> int:
    """Return what the kernel says of this process's memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--budget", type=float, default=20, help="seconds for a shape")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_peak(options.peak[0], int(options.peak[1]), int(options.peak[2]))
        return
    torch.set_num_threads(options.threads)
    ways = dict(WAYS)
    if options.compile:
        ways["torch.compile"] = differentiated(torch.compile(broadcast, dynamic=False))
    view = Table("texts x words", "way", "time", "peak MB", title=machine())
    for texts, words in SHAPES:
        inputs = make_inputs(texts, words)
        bound = {name: partial(way, *inputs) for name, way in ways.items()}
        seconds = interleaved_medians(bound, repeats=15, budget=options.budget)
        for name in ways:
            peak = peak_megabytes(name, texts, words) if name in WAYS else None
            view.add_row(
                f"{texts} x {words}",
                name,
                f"{seconds[name] / seconds['fused']:.2f}",
                "" if peak is None else f"{peak:.0f}",
            )
    Console().print(view)


if __name__ == "__main__":
    main()
