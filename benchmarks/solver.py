"""Which solver for the Perron vector is fastest, leanest and most accurate?

This benchmark runs a forward and backward pass of the solver alone, in float32, on
left-stochastic edges whose scores are normal with standard deviation 1, 3 and 8. The
columns are:

    ratio           time relative to `stationary_distribution`, median of interleaved
                    repeats
    kilobytes       memory saved for backward, counting each storage once
    weight error    largest relative error of a weight, compared with float64
    gradient error  largest error of the gradient with respect to the scores, relative
                    to its largest entry
    failure         error message of a method that failed

    python benchmarks/solver.py [--json FILE] [--threads 1] [--budget 8] [--quick]

Runs on one thread by default. With more threads, torch's batched LU of 200 or more
words fails inside MKL on some machines; the failure column then shows the error.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torchdeq import get_deq

from perron import power_iteration, stationary_distribution
from timing import Report, interleaved_medians

SHAPES = [(128, 20), (640, 25), (64, 50), (32, 200), (8, 400)]
STDS = [1, 3, 8]
PAPER = {"tol": 1e-10, "max_iter": 200}


def by_lu(edges: Tensor) -> Tensor:
    """Solve (diag(1ᵀA) - A + 11ᵀ/n) x = 1/n, all texts in one call."""
    n = edges.shape[-1]
    bordered = torch.diag_embed(edges.sum(-2)) - edges + 1 / n
    rhs = edges.new_full((*edges.shape[:-1], 1), 1 / n)
    return torch.linalg.solve(bordered, rhs).squeeze(-1)


def by_eig(edges: Tensor) -> Tensor:
    """Return the eigenvector of the largest eigenvalue."""
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
    """Run power iteration, the paper's method, with weights that sum to one."""
    return power_iteration(edges, norm="sum", **settings).vector


Solver = Callable[[Tensor], Tensor]

REFERENCE = "stationary_distribution"
METHODS: dict[str, Solver] = {
    REFERENCE: stationary_distribution,
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


def gradient(solver: Solver, edges: Tensor, grad: Tensor) -> Tensor:
    """Return ∂ℓ/∂A. This forward and backward pass is what is timed."""
    leaf = edges.detach().requires_grad_()
    (edge_grad,) = torch.autograd.grad(solver(leaf), leaf, grad)
    return edge_grad


def kilobytes_saved(solver: Solver, edges: Tensor) -> float:
    """Return the size of the tensors that autograd saves for backward."""
    storages = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        solver(edges.detach().requires_grad_())
    return sum(storages.values()) / 1000


def errors(solver: Solver, edges: Tensor, grad: Tensor) -> tuple[float, float]:
    """Return the largest relative error of a weight and of the gradient."""
    exact = edges.double()
    expected = stationary_distribution(exact)
    weight_error = ((solver(edges).double() - expected) / expected).abs().max().item()

    def score_grad(edge_grad: Tensor) -> Tensor:
        edge_grad = edge_grad.double()
        return exact * (edge_grad - (exact * edge_grad).sum(-2, keepdim=True))

    expected_grad = score_grad(gradient(stationary_distribution, exact, grad.double()))
    difference = score_grad(gradient(solver, edges, grad)) - expected_grad
    largest = expected_grad.abs().amax((-2, -1))
    return weight_error, (difference.abs().amax((-2, -1)) / largest).max().item()


def measure(texts: int, words: int, std: float, budget: float) -> list[dict]:
    """Return a row for each method."""
    rng = torch.Generator().manual_seed(words)
    scores = std * torch.randn(texts, words, words, generator=rng)
    edges, grad = scores.softmax(-2), torch.randn(texts, words, generator=rng)
    rows, calls = [], {}
    for name, solver in METHODS.items():
        row = {"method": name, "texts": texts, "words": words, "std": std}
        try:
            row["weight error"], row["gradient error"] = errors(solver, edges, grad)
            row["kilobytes"] = kilobytes_saved(solver, edges)
            calls[name] = partial(gradient, solver, edges, grad)
        except RuntimeError as error:
            row["failure"] = str(error).splitlines()[0][:60]
        rows.append(row)
    seconds = interleaved_medians(calls, repeats=15, budget=budget)
    for row in rows:
        if row["method"] in seconds:
            row["seconds"] = seconds[row["method"]]
            row["ratio"] = seconds[row["method"]] / seconds[REFERENCE]
    return rows


def conclusions(rows: list[dict]) -> list[str]:
    """Summarize speed and accuracy."""

    def smallest_ratio(condition: Callable[[dict], bool]) -> float:
        return min(r["ratio"] for r in rows if "ratio" in r and condition(r))

    def is_lu(row: dict) -> bool:
        return row["method"] == "torch.linalg.solve"

    power = smallest_ratio(lambda r: "paper" in r["method"])
    short = smallest_ratio(lambda r: is_lu(r) and r["words"] <= 50)
    lines = [
        f"`{REFERENCE}` is at least {power:.1f} times faster than the fastest power "
        "iteration at the paper's settings",
        f"it is at least {short:.1f} times faster than batched LU up to 50 words",
    ]
    if any(is_lu(r) and r["words"] == 400 and "ratio" in r for r in rows):
        share = 1 / smallest_ratio(lambda r: is_lu(r) and r["words"] == 400)
        lines.append(f"it takes at most {share:.2f} of batched LU's time at 400 words")
    own = {(r["words"], r["std"]): r for r in rows if r["method"] == REFERENCE}
    more_accurate = [
        f"{r['method']} at {r['texts']} x {r['words']}, std {r['std']}: "
        f"{kind} {r[kind]:.1e}, compared with {own[r['words'], r['std']][kind]:.1e}"
        for r in rows
        for kind in ("weight error", "gradient error")
        if r.get(kind, torch.inf) < own[r["words"], r["std"]][kind]
    ]
    return lines + (more_accurate or ["no other method is more accurate in any case"])


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=8, threads=1)
    columns = {
        "method": "",
        "ratio": ".2f",
        "kilobytes": ".0f",
        "weight error": ".0e",
        "gradient error": ".0e",
        "failure": "",
    }
    for texts, words in SHAPES[:1] if report.quick else SHAPES:
        for std in STDS:
            rows = measure(texts, words, std, report.budget)
            title = f"{texts} x {words}, std {std}"
            report.add(title, rows, columns)
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
