"""What does centrality pooling cost on a GPU?

This benchmark times the solver, the pair scores, pooling and a training step (BiLSTM
and transformer encoder), forward and backward, for the Triton kernels, the torch
kernels and self-attention, in float32 and bfloat16 (the solver always runs in float32).
Times are medians of interleaved repeats, measured with CUDA events. The peak is the
largest memory that torch allocates during a call, in MB. Ratios are relative to
self-attention, or to the Triton kernels where there is none. `make gpu` tests the
kernels first.

    python benchmarks/gpu.py [--json FILE] [--quick] [--tiny]

`--tiny` runs one call per case on tiny inputs, on the CPU by Triton's interpreter. It
shows that the benchmark works, not how fast anything is.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

IS_TINY = "--tiny" in sys.argv
if IS_TINY:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from perron import CentralityPool, SelfAttentionPool  # noqa: E402
from perron import stationary_distribution as solve  # noqa: E402
from perron.kernels import dispatch as kernels  # noqa: E402
from perron.pooling.pair_scores import pair_scores  # noqa: E402

SHAPES = [(128, 20), (640, 25), (64, 50), (32, 200), (8, 400)]
WIDTH, HIDDEN, CLASSES = 600, 50, 5
REPEATS = 21
BACKENDS = ("triton", "torch")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

if IS_TINY:
    SHAPES = [(2, 6), (1, 70)]
    WIDTH, HIDDEN = 16, 4
    REPEATS = 1

Call = Callable[[], object]


def device() -> torch.device:
    """Return the GPU, or the CPU with --tiny."""
    if IS_TINY:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        sys.exit(
            "benchmarks/gpu.py needs a GPU, and torch finds none. Use --tiny to test "
            "the benchmark itself on the CPU."
        )
    return torch.device("cuda")


def seconds(call: Call, on: torch.device) -> float:
    """Return the duration of one call, including the work it queues on the device."""
    if on.type == "cpu":
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def peak_megabytes(call: Call, on: torch.device) -> float:
    """Return the memory that a call allocates at its peak; NaN on the CPU."""
    if on.type == "cpu":
        return float("nan")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def measure(calls: dict[str, Call], on: torch.device) -> list[dict]:
    """Return a row with median time and peak memory for each call, timed in turns."""
    for call in calls.values():
        call()  # compile, self-check, warm caches
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(REPEATS):
        for name, call in calls.items():
            times[name].append(seconds(call, on))
    medians = {name: statistics.median(values) for name, values in times.items()}
    reference = medians.get("self-attention", medians["triton"])
    return [
        {
            "method": name,
            "milliseconds": 1000 * medians[name],
            "ratio": medians[name] / reference,
            "peak MB": peak_megabytes(call, on),
        }
        for name, call in calls.items()
    ]


def with_kernels(backend: str, call: Call) -> Call:
    """Return the call with the kernels of a backend."""

    def run() -> object:
        with kernels.use(backend):
            return call()

    return run


def solver_calls(texts: int, words: int, on: torch.device) -> dict[str, Call]:
    """Return the solver with each backend."""
    edges = torch.randn(texts, words, words, device=on).softmax(-2).requires_grad_()
    grad = torch.randn(texts, words, device=on)

    def call() -> None:
        torch.autograd.grad(solve(edges), edges, grad)

    return {backend: with_kernels(backend, call) for backend in BACKENDS}


def score_calls(texts: int, words: int, on: torch.device) -> dict[str, Call]:
    """Return the pair scores with each backend."""
    x = torch.randn(texts * words, 2, 1, HIDDEN, device=on, requires_grad=True)
    w = torch.randn(1, HIDDEN, device=on, requires_grad=True)
    mask = torch.ones(texts, words, dtype=torch.bool, device=on)
    grad = torch.randn(texts, 1, words, words, device=on)

    def call() -> None:
        torch.autograd.grad(pair_scores(x, w, mask, "tanh"), (x, w), grad)

    return {backend: with_kernels(backend, call) for backend in BACKENDS}


def pooling_calls(
    texts: int, words: int, dtype: torch.dtype, on: torch.device
) -> dict[str, Call]:
    """Return centrality pooling with each backend, and self-attention."""
    states = torch.randn(
        texts, words, WIDTH, device=on, dtype=dtype, requires_grad=True
    )

    def make(pool: nn.Module) -> Call:
        pool.to(device=on)

        def call() -> None:
            pool(states).vector.float().square().sum().backward()

        return call

    calls = {"self-attention": make(SelfAttentionPool(WIDTH, hidden_dim=HIDDEN))}
    centrality = make(CentralityPool(WIDTH, hidden_dim=HIDDEN))
    return calls | {b: with_kernels(b, centrality) for b in BACKENDS}


class Model(nn.Module):
    """An encoder, an aggregator and a linear layer."""

    def __init__(self, encoder: str, pool: nn.Module) -> None:
        super().__init__()
        self.lstm, self.transformer = None, None
        if encoder == "BiLSTM":
            half = WIDTH // 2
            self.lstm = nn.LSTM(WIDTH, half, batch_first=True, bidirectional=True)
        else:
            self.transformer = nn.TransformerEncoderLayer(
                WIDTH, nhead=4, dim_feedforward=2 * WIDTH, dropout=0, batch_first=True
            )
        self.pool = pool
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the logits (B, C) of vectors (B, N, D)."""
        if self.lstm is not None:
            return self.head(self.pool(self.lstm(vectors)[0]).vector)
        return self.head(self.pool(self.transformer(vectors)).vector)


def step_calls(
    encoder: str, texts: int, words: int, dtype: torch.dtype, on: torch.device
) -> dict[str, Call]:
    """Return an optimizer step of a model with each aggregator."""
    vectors = torch.randn(texts, words, WIDTH, device=on)
    labels = torch.randint(CLASSES, (texts,), device=on)

    def make(pool: nn.Module) -> Call:
        model = Model(encoder, pool).to(on)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        is_half = dtype != torch.float32

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast(on.type, dtype) if is_half else nullcontext():
                loss = F.cross_entropy(model(vectors).float(), labels)
            loss.backward()
            optimizer.step()

        return step

    calls = {"self-attention": make(SelfAttentionPool(WIDTH, hidden_dim=HIDDEN))}
    centrality = make(CentralityPool(WIDTH, hidden_dim=HIDDEN))
    return calls | {b: with_kernels(b, centrality) for b in BACKENDS}


def cases(shapes: list[tuple[int, int]], on: torch.device) -> Iterator[tuple]:
    """Yield the title and the calls of each table."""
    for texts, words in shapes:
        size = f"{texts} x {words}"
        yield f"solver, {size}", solver_calls(texts, words, on)
        yield f"pair scores, {size}", score_calls(texts, words, on)
        for name, dtype in DTYPES.items():
            calls = pooling_calls(texts, words, dtype, on)
            yield f"pooling, {name}, {size}", calls
            for encoder in ("BiLSTM", "transformer"):
                calls = step_calls(encoder, texts, words, dtype, on)
                yield f"training step, {encoder}, {name}, {size}", calls


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    parser.add_argument("--quick", action="store_true", help="only the smallest case")
    parser.add_argument("--tiny", action="store_true", help="test it on the CPU")
    options = parser.parse_args()
    on = device()
    name = "CPU, Triton interpreter" if IS_TINY else torch.cuda.get_device_name()
    console = Console()
    console.print(f"{name}, torch {torch.__version__}")
    rows = []
    for title, calls in cases(SHAPES[:1] if options.quick else SHAPES, on):
        table = Table("method", "milliseconds", "ratio", "peak MB", title=title)
        for row in measure(calls, on):
            figures = (row["milliseconds"], row["ratio"], row["peak MB"])
            table.add_row(row["method"], *(f"{figure:.2f}" for figure in figures))
            rows.append({"case": title, **row})
        console.print(table)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"device": name, "torch": torch.__version__, "rows": rows}
        options.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
