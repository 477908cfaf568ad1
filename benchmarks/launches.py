"""Number of torch operations in a forward and backward pass on a GPU.

An operation that is neither a view nor an allocation launches at least one kernel,
which takes about 5 µs on a GPU even for a tiny text. The operations are counted in
torch's dispatcher, with the plain torch kernels in float32. No GPU is needed. The
columns are:

    operations  all dispatched operations, including views and allocations
    launches    the operations that compute something
    per word    launches for each additional word, compared with the row above

A few operations launch more than one kernel. On CUDA, `solve_triangular` first copies
the right-hand side and prepares pointers, so a profiler shows somewhat larger numbers.

    python benchmarks/launches.py [--json FILE] [--quick]
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from perron import CentralityPool, stationary_distribution
from perron.kernels import use
from timing import Report

TEXTS = 32
DIM = 600
WORDS = [20, 50, 200]

# These have no kernel, although they are not marked as views.
NO_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view"}


class OperationCounter(TorchDispatchMode):
    """Count the operations inside a ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.launches = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.operations += 1
        name = func.overloadpacket.__name__
        self.launches += not func.is_view and name not in NO_KERNEL
        return func(*args, **(kwargs or {}))


def solve(words: int) -> Callable[[], object]:
    """Return a forward and backward pass of the solver alone."""
    edges = torch.randn(TEXTS, words, words).softmax(-2).requires_grad_()
    mask = torch.ones(TEXTS, words, dtype=torch.bool)
    grad = torch.randn(TEXTS, words)
    return lambda: stationary_distribution(edges, mask).backward(grad)


def pool(words: int) -> Callable[[], object]:
    """Return a forward and backward pass of the aggregator, from states to vectors."""
    module = CentralityPool(DIM)
    states = torch.randn(TEXTS, words, DIM, requires_grad=True)
    mask = torch.ones(TEXTS, words, dtype=torch.bool)
    grad = torch.randn(TEXTS, DIM)

    def run() -> None:
        vector: Tensor = module(states, mask).vector
        vector.backward(grad)

    return run


CASES = {"stationary_distribution": solve, "CentralityPool": pool}


def measure(name: str, all_words: list[int]) -> list[dict]:
    """Return a row for each number of words."""
    rows: list[dict] = []
    for words in all_words:
        call = CASES[name](words)
        call()  # allocate the gradients, so that the second call accumulates them
        with OperationCounter() as counter:
            call()
        row = {
            "function": name,
            "words": words,
            "operations": counter.operations,
            "launches": counter.launches,
        }
        if rows:
            more = row["launches"] - rows[-1]["launches"]
            row["per word"] = more / (words - rows[-1]["words"])
        rows.append(row)
    return rows


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=0)
    columns = {"words": "", "operations": ",", "launches": ",", "per word": ".1f"}
    with use("torch"):
        for name in CASES:
            rows = measure(name, WORDS[:2] if report.quick else WORDS)
            report.add(name, rows, columns)
    last = [row for row in report.rows if row["function"] == "stationary_distribution"]
    report.finish(
        [
            f"`stationary_distribution` takes {last[-1]['launches']} launches for "
            f"{last[-1]['words']} words, {last[-1]['per word']:.1f} for each more word"
        ]
    )


if __name__ == "__main__":
    main()
