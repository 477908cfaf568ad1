"""Convergence of the paper's power iteration on the graphs of a trained model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papers.gong2019.figures import image_files
from papers.gong2019.paper import EPSILON, MAX_ITERATIONS
from papers.gong2019.provenance import find_or_train, missing_artifact, origin
from papers.gong2019.workspace import Artifact, Workspace
from perron.errors import DataError
from perron.files import markdown_table
from perron.models import Classifier
from perron.solver import power_iteration, stationary_distribution
from perron.solver.power import default_tolerance
from perron.text.sampling import Examples, evaluation_batches
from perron.training.prepare import load_run_examples

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Convergence of power iteration"
COLUMNS = ("dtype", "source", "tolerance", "iterations", "texts", "converged")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
_BATCH = 64
_BIN = 5  # iterations per bar


@dataclass(frozen=True)
class IterationCounts:
    """Iterations that power iteration needed on each graph.

    Attributes:
        dtype: Data type of the computation.
        tolerance: Stopping tolerance ε.
        source: Origin of ε: the paper, or Perron's default for the dtype.
        iterations: Number of iterations on each graph.
        converged: Whether each graph met the stopping criterion.
        error: Largest error of any weight, compared with the exact solver.
    """

    dtype: str
    tolerance: float
    source: str
    iterations: Int[np.ndarray, " n"]
    converged: Bool[np.ndarray, " n"]
    error: float

    @property
    def name(self) -> str:
        """The dtype and the tolerance."""
        return f"{self.dtype}, {self.source} ε = {self.tolerance:g}"

    @property
    def unconverged(self) -> float:
        """The share of graphs that used all iterations without converging."""
        return float(((self.iterations == MAX_ITERATIONS) & ~self.converged).mean())

    def cells(self) -> list[str]:
        """Return a row of the table."""
        return [
            self.name,
            f"{100 * self.converged.mean():.1f} %",
            f"{np.median(self.iterations):g}",
            f"{np.quantile(self.iterations, 0.9):.0f}",
            str(self.iterations.max()),
            f"{100 * self.unconverged:.1f} %",
            f"{self.error:.1e}",
        ]


def convergence(workspace: Workspace) -> Artifact:
    """Count iterations on the dev texts of SST-2, in float32 and float64."""
    trained = find_or_train(workspace, "sst2")
    if isinstance(trained, str):
        return missing_artifact("convergence", TITLE, trained, COLUMNS)
    try:
        dev = load_run_examples(trained.pipeline, trained.folder, "dev", workspace.root)
    except DataError as error:
        reason = workspace.missing("sst2") or str(error)
        return missing_artifact("convergence", TITLE, reason, COLUMNS)
    results = count_iterations(list(word_graphs(trained.pipeline.model, dev)))
    header = ["", "converged", "median", "90th percentile", "maximum"]
    header += ["not converged", "max error"]
    text = "\n\n".join(
        [
            f"![{TITLE}](convergence.svg)",
            markdown_table(header, [result.cells() for result in results]),
            _conclusion(results),
            "Power iteration starts from equal weights and runs for at most "
            f"{MAX_ITERATIONS} iterations on each of the {len(results[0].iterations)} "
            "graphs of the dev texts. `converged` is the share of graphs that met the "
            "stopping criterion, and `not converged` the share that used all "
            "iterations without meeting it. The three columns between them are numbers "
            "of iterations. `max error` is the largest error of any weight, compared "
            "with the exact solver in float64; the weights of a text sum to one.",
            origin(trained),
        ]
    )
    images = image_files("convergence", draw_histograms(results))
    return Artifact("convergence", TITLE, text + "\n", _rows(results), images)


def word_graphs(
    model: Classifier, examples: Examples
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the graphs (B, N, N) of each head, and their masks (B, N)."""
    model.eval()
    for rows in evaluation_batches(examples.sizes, _BATCH):
        with torch.inference_mode():
            (pooled,) = model(**examples.batch(rows).inputs, need_edges=True).pooled
        edges = pooled.head_edges  # (B, H, N, N)
        lengths = torch.from_numpy(examples.sizes[rows])
        mask = torch.arange(edges.shape[-1]) < lengths[:, None]
        heads = edges.shape[1]
        yield edges.flatten(0, 1), mask.repeat_interleave(heads, 0)


def count_iterations(
    graphs: Sequence[tuple[Tensor, Tensor]],
) -> list[IterationCounts]:
    """Run power iteration with each dtype and tolerance.

    Args:
        graphs: Float32 edges (B, N, N) and masks (B, N).
    """
    exact_edges = [_stochastic(edges.double(), mask) for edges, mask in graphs]
    exact_weights = [
        stationary_distribution(edges, mask)
        for edges, (_, mask) in zip(exact_edges, graphs, strict=True)
    ]
    counts = []
    for name, dtype in DTYPES.items():
        tolerances = {"paper": EPSILON, "default": default_tolerance(dtype)}
        for source, tol in tolerances.items():
            results = [
                power_iteration(
                    edges.to(dtype), mask, tol=tol, max_iter=MAX_ITERATIONS, norm="sum"
                )
                for edges, (_, mask) in zip(exact_edges, graphs, strict=True)
            ]
            errors = [
                (result.vector.double() - expected).abs().max().item()
                for result, expected in zip(results, exact_weights, strict=True)
            ]
            infos = [result.info for result in results]
            iterations = torch.cat([info.iterations for info in infos]).numpy()
            converged = torch.cat([info.converged for info in infos]).numpy()
            counts.append(
                IterationCounts(name, tol, source, iterations, converged, max(errors))
            )
    return counts


def _stochastic(
    edges: Float[Tensor, "b n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "b n n"]:
    """Normalize the columns in float64, so that λ is 1 as in float32."""
    return edges / edges.sum(-2, keepdim=True).where(mask.unsqueeze(-2), 1)


def _conclusion(results: Sequence[IterationCounts]) -> str:
    """Return a summary in words."""
    paper32, default32, paper64, _ = results
    return (
        f"In float32, {100 * paper32.converged.mean():.1f} % of the graphs meet the "
        f"paper's ε = {EPSILON:g}, and {100 * paper32.unconverged:.1f} % use all "
        f"{MAX_ITERATIONS} iterations, although their weights are within "
        f"{paper32.error:.0e} of the exact ones by then. With ε = "
        f"{default32.tolerance:g}, {100 * default32.converged.mean():.1f} % converge, "
        f"half of them within {np.median(default32.iterations):g} iterations, to "
        f"within {default32.error:.0e}. In float64, "
        f"{100 * paper64.converged.mean():.1f} % meet the paper's ε, after a median of "
        f"{np.median(paper64.iterations):g} and at most {paper64.iterations.max()} "
        f"iterations, with a largest error of {paper64.error:.0e}."
    )


def _rows(results: Sequence[IterationCounts]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [COLUMNS]
    for result in results:
        histogram = np.unique(result.iterations, return_counts=True)
        for count, texts in zip(*histogram, strict=True):
            converged = int((result.converged & (result.iterations == count)).sum())
            numbers = f"{result.tolerance:g}", str(count), str(texts), str(converged)
            rows.append([result.dtype, result.source, *numbers])
    return rows


def draw_histograms(results: Sequence[IterationCounts]) -> "Figure":
    """Draw a histogram for each dtype (rows) and tolerance (columns)."""
    from matplotlib.figure import Figure  # takes seconds

    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    bins = np.arange(0, MAX_ITERATIONS + 1, _BIN) + 0.5  # 1 to 5, 6 to 10, …
    for axes, result in zip(panels.flat, results, strict=True):
        groups = [
            result.iterations[result.converged],
            result.iterations[~result.converged],
        ]
        percent = 100 / len(result.iterations)
        axes.hist(
            groups,
            bins,
            weights=[np.full(len(group), percent) for group in groups],
            stacked=True,
            color=["0.35", "#e27026"],
            label=["converged", "not converged"],
        )
        axes.set_title(result.name, fontsize=10)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
    panels[0, 0].legend(frameon=False)
    figure.supxlabel("iterations", fontsize=10)
    figure.supylabel("% of the graphs", fontsize=10)
    return figure
