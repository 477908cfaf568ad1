"""Which way to the Perron vector is fastest, leanest and most accurate?

Forward and backward through the solver alone, float32, from left-stochastic edges whose
scores are normal with standard deviation 1, 3 and 8. Prints a table:

    ratio      of its time to that of `stationary`, medians of interleaved repeats
    kilobytes  saved for backward, in distinct storages
    entry      worst relative error of an entry of the weights, against float64
    gradient   worst error of the gradient to the scores, relative to its largest entry
    failed     how, if it did

    python benchmarks/solver.py [--json FILE] [--threads 1] [--budget 8] [--quick]

One thread by default: with more, torch's batched LU of 200 words and above fails inside
MKL on some machines, and then its rows say so.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torchdeq import get_deq

from perron import power_method, stationary
from timing import Report, interleaved_medians

SHAPES = [(128, 20), (640, 25), (64, 50), (32, 200), (8, 400)]
DEVIATIONS = [1, 3, 8]
PAPER = {"tol": 1e-10, "max_steps": 200}


def by_lu(edges: Tensor) -> Tensor:
    """Solve (diag(1ᵀA) - A + 11ᵀ/n) x = 1/n, all texts in one call."""
    n = edges.shape[-1]
    bordered = torch.diag_embed(edges.sum(-2)) - edges + 1 / n
    rhs = edges.new_full((*edges.shape[:-1], 1), 1 / n)
    return torch.linalg.solve(bordered, rhs).squeeze(-1)


def by_eig(edges: Tensor) -> Tensor:
    """Take the eigenvector of the largest eigenvalue."""
    values, vectors = torch.linalg.eig(edges)
    top = values.real.argmax(-1)[:, None, None].expand(-1, edges.shape[-1], 1)
    vector = vectors.gather(-1, top).squeeze(-1)
    return (vector / vector.sum(-1, keepdim=True)).real


def by_torchdeq(edges: Tensor) -> Tensor:
    """Iterate x = Ax/1ᵀAx to a fixed point, with the implicit gradient."""
    deq = get_deq(
        ift=True, f_max_iter=200, f_tol=1e-6, b_max_iter=200, b_tol=1e-6, no_stat=True
    )
    start = edges.new_full(edges.shape[:-1], 1 / edges.shape[-1])

    def step(x: Tensor) -> Tensor:
        y = (edges @ x.unsqueeze(-1)).squeeze(-1)
        return y / y.sum(-1, keepdim=True)

    return deq(step, start)[0][-1]


def by_power(edges: Tensor, **settings) -> Tensor:
    """Use the paper's method, with weights that sum to one."""
    return power_method(edges, norm="sum", **settings).vector


WAYS: dict[str, Callable[[Tensor], Tensor]] = {
    "stationary": stationary,
    "power, unrolled, paper": partial(by_power, gradient="unrolled", **PAPER),
    "power, truncated, paper": partial(by_power, gradient="truncated", **PAPER),
    "power, reverse, paper": partial(by_power, gradient="reverse", **PAPER),
    "power, unrolled": partial(by_power, gradient="unrolled"),
    "power, truncated": partial(by_power, gradient="truncated"),
    "power, reverse": partial(by_power, gradient="reverse"),
    "torch.linalg.solve": by_lu,
    "torch.linalg.eig": by_eig,
    "torchdeq": by_torchdeq,
}


def gradient(way: Callable[[Tensor], Tensor], edges: Tensor, grad: Tensor) -> Tensor:
    """Return ∂ℓ/∂A: what is timed, forward and backward."""
    moved = edges.detach().requires_grad_()
    (slope,) = torch.autograd.grad(way(moved), moved, grad)
    return slope


def kilobytes_saved(way: Callable[[Tensor], Tensor], edges: Tensor) -> float:
    """Return what autograd keeps between forward and backward."""
    storages = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        way(edges.detach().requires_grad_())
    return sum(storages.values()) / 1000


def errors(
    way: Callable[[Tensor], Tensor], edges: Tensor, grad: Tensor
) -> tuple[float, float]:
    """Return the worst relative error of an entry and of the gradient."""
    exact = edges.double()
    want = stationary(exact)
    entry = ((way(edges).double() - want) / want).abs().max().item()

    def to_scores(slope: Tensor) -> Tensor:
        slope = slope.double()
        return exact * (slope - (exact * slope).sum(-2, keepdim=True))

    right = to_scores(gradient(stationary, exact, grad.double()))
    off = (to_scores(gradient(way, edges, grad)) - right).abs().amax((-2, -1))
    return entry, (off / right.abs().amax((-2, -1))).max().item()


def measure(texts: int, words: int, deviation: float, budget: float) -> list[dict]:
    """Return a row for each way."""
    rng = torch.Generator().manual_seed(words)
    scores = deviation * torch.randn(texts, words, words, generator=rng)
    edges, grad = scores.softmax(-2), torch.randn(texts, words, generator=rng)
    rows, ways = [], {}
    for name, way in WAYS.items():
        row = {"way": name, "texts": texts, "words": words, "deviation": deviation}
        try:
            row["entry"], row["gradient"] = errors(way, edges, grad)
            row["kilobytes"] = kilobytes_saved(way, edges)
            ways[name] = partial(gradient, way, edges, grad)
        except RuntimeError as error:
            row["failed"] = str(error).splitlines()[0][:60]
        rows.append(row)
    seconds = interleaved_medians(ways, repeats=15, budget=budget)
    for row in rows:
        if row["way"] in seconds:
            row["seconds"] = seconds[row["way"]]
            row["ratio"] = seconds[row["way"]] / seconds["stationary"]
    return rows


def conclusions(rows: list[dict]) -> list[str]:
    """Return what the issue of speed and accuracy comes down to."""

    def least(condition: Callable[[dict], bool]) -> float:
        return min(r["ratio"] for r in rows if "ratio" in r and condition(r))

    def is_lu(row: dict) -> bool:
        return row["way"] == "torch.linalg.solve"

    lines = [
        "stationary is faster than the fastest power method at the paper's settings by "
        f"{least(lambda r: 'paper' in r['way']):.1f} times or more",
        "than batched LU up to 50 words by "
        f"{least(lambda r: is_lu(r) and r['words'] <= 50):.1f} times or more",
    ]
    if any(is_lu(r) and r["words"] == 400 and "ratio" in r for r in rows):
        most = 1 / least(lambda r: is_lu(r) and r["words"] == 400)
        lines.append(f"and takes {most:.2f} of batched LU's time at 400 words or less")
    own = {(r["words"], r["deviation"]): r for r in rows if r["way"] == "stationary"}
    beaten = [
        f"{r['way']} at {r['texts']} x {r['words']}, deviation {r['deviation']}: "
        f"{kind} {r[kind]:.1e} against {own[r['words'], r['deviation']][kind]:.1e}"
        for r in rows
        for kind in ("entry", "gradient")
        if r.get(kind, torch.inf) < own[r["words"], r["deviation"]][kind]
    ]
    return lines + (beaten or ["it is nowhere beaten in accuracy"])


def main() -> None:
    """Measure and print."""
    report = Report(__doc__, budget=8, threads=1)
    columns = {
        "way": "",
        "ratio": ".2f",
        "kilobytes": ".0f",
        "entry": ".0e",
        "gradient": ".0e",
        "failed": "",
    }
    for texts, words in SHAPES[:1] if report.quick else SHAPES:
        for deviation in DEVIATIONS:
            rows = measure(texts, words, deviation, report.budget)
            title = f"{texts} x {words}, deviation {deviation}"
            report.add(title, rows, columns)
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
