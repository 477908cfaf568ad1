"""How many steps the paper's power method takes on the graphs of a trained model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from papers.gong2019.figures import picture_files
from papers.gong2019.paper import EPSILON, MOST_STEPS
from papers.gong2019.provenance import find_trained, missing_piece, origin
from papers.gong2019.work import Piece, Work
from perron.errors import DataError
from perron.files import markdown_table
from perron.models import Classifier
from perron.solver import power_method, stationary
from perron.solver.power import default_tolerance
from perron.text.sampling import Examples, batches_in_order
from perron.training.prepare import held_out_examples

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Convergence: steps of the power method"
COLUMNS = ("dtype", "whose", "tolerance", "steps", "texts", "converged")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
_BATCH = 64
_BIN = 5  # steps that share a bar


@dataclass(frozen=True)
class Steps:
    """How the power method ended on every graph.

    Attributes:
        dtype: it was run in.
        tolerance: ε, where it stops.
        whose: the paper's ε, or Perron's own for the dtype.
        steps: that each graph took.
        converged: whether the rule was met.
        error: the largest of any weight, against the exact weights.
    """

    dtype: str
    tolerance: float
    whose: str
    steps: Int[np.ndarray, " n"]
    converged: Bool[np.ndarray, " n"]
    error: float

    @property
    def name(self) -> str:
        """The dtype and the tolerance."""
        return f"{self.dtype}, {self.whose} ε = {self.tolerance:g}"

    @property
    def burnt(self) -> float:
        """The share of graphs that took all steps without meeting the rule."""
        return float(((self.steps == MOST_STEPS) & ~self.converged).mean())

    def cells(self) -> list[str]:
        """Return a row of the table."""
        return [
            self.name,
            f"{100 * self.converged.mean():.1f} %",
            f"{np.median(self.steps):g}",
            f"{np.quantile(self.steps, 0.9):.0f}",
            str(self.steps.max()),
            f"{100 * self.burnt:.1f} %",
            f"{self.error:.1e}",
        ]


def convergence(work: Work) -> Piece:
    """Count steps on the dev texts of SST-2, in float32 and float64."""
    trained = find_trained(work, "sst2")
    if isinstance(trained, str):
        return missing_piece("convergence", TITLE, trained, COLUMNS)
    try:
        dev = held_out_examples(trained.pipeline, trained.folder, "dev", work.root)
    except DataError as error:
        reason = work.missing("sst2") or str(error)
        return missing_piece("convergence", TITLE, reason, COLUMNS)
    found = count_steps(list(graphs_of(trained.pipeline.model, dev)))
    header = ["", "converged", "median", "90 %", "most", "burnt all", "largest error"]
    text = "\n\n".join(
        [
            f"![{TITLE}](convergence.svg)",
            markdown_table(header, [of.cells() for of in found]),
            _meaning(found),
            f"The power method begins with equal weights and takes at most "
            f"{MOST_STEPS} steps, on each of the {len(found[0].steps)} graphs of dev "
            "texts. converged: the share that met the stopping rule; median, 90 %, "
            "most: steps; burnt all: took all steps and did not meet the rule; largest "
            "error: of any weight against the exact solver in float64, weights of a "
            "text summing to one.",
            origin(trained),
        ]
    )
    pictures = picture_files("convergence", draw_steps(found))
    return Piece("convergence", TITLE, text + "\n", _rows(found), pictures)


def graphs_of(model: Classifier, examples: Examples) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield graphs (B, N, N), a head after the other, and masks of words (B, N)."""
    model.eval()
    for rows in batches_in_order(examples.sizes, _BATCH):
        with torch.inference_mode():
            (pooled,) = model(**examples.batch(rows).inputs, need_edges=True).pooled
        edges = pooled.head_edges  # (B, H, N, N)
        lengths = torch.from_numpy(examples.sizes[rows])
        mask = torch.arange(edges.shape[-1]) < lengths[:, None]
        heads = edges.shape[1]
        yield edges.flatten(0, 1), mask.repeat_interleave(heads, 0)


def count_steps(graphs: Sequence[tuple[Tensor, Tensor]]) -> list[Steps]:
    """Run the power method with each dtype and tolerance.

    Args:
        graphs: edges (B, N, N), float32, and masks (B, N).
    """
    sharp = [_stochastic(edges.double(), mask) for edges, mask in graphs]
    exact = [
        stationary(edges, mask) for edges, (_, mask) in zip(sharp, graphs, strict=True)
    ]
    found = []
    for name, dtype in DTYPES.items():
        for whose, tol in (
            ("the paper's", EPSILON),
            ("its own", default_tolerance(dtype)),
        ):
            results = [
                power_method(
                    edges.to(dtype), mask, tol=tol, max_steps=MOST_STEPS, norm="sum"
                )
                for edges, (_, mask) in zip(sharp, graphs, strict=True)
            ]
            errors = [
                (result.vector.double() - right).abs().max().item()
                for result, right in zip(results, exact, strict=True)
            ]
            steps = torch.cat([result.info.steps for result in results])
            converged = torch.cat([result.info.converged for result in results])
            found.append(
                Steps(name, tol, whose, steps.numpy(), converged.numpy(), max(errors))
            )
    return found


def _stochastic(
    edges: Float[Tensor, "b n n"], mask: Bool[Tensor, "b n"]
) -> Float[Tensor, "b n n"]:
    """Make columns sum to one in float64, as they do in float32, for λ to be 1."""
    return edges / edges.sum(-2, keepdim=True).where(mask.unsqueeze(-2), 1)


def _meaning(found: Sequence[Steps]) -> str:
    """Say what the numbers come down to."""
    paper32, own32, paper64, _ = found
    return (
        f"In float32 the paper's ε = {EPSILON:g} is met on "
        f"{100 * paper32.converged.mean():.1f} % of the graphs and "
        f"{100 * paper32.burnt:.1f} % burn all {MOST_STEPS} steps, though the weights "
        f"are within {paper32.error:.0e} of the exact ones by then; with ε = "
        f"{own32.tolerance:g}, {100 * own32.converged.mean():.1f} % converge, half of "
        f"them within {np.median(own32.steps):g} steps, to within {own32.error:.0e}. "
        f"In float64 the paper's ε is met on {100 * paper64.converged.mean():.1f} % of "
        f"them, after {np.median(paper64.steps):g} steps in the median and "
        f"{paper64.steps.max()} at the most, with a largest error of "
        f"{paper64.error:.0e}."
    )


def _rows(found: Sequence[Steps]) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = [COLUMNS]
    for of in found:
        for steps, texts in zip(*np.unique(of.steps, return_counts=True), strict=True):
            met = int((of.converged & (of.steps == steps)).sum())
            told = (f"{of.tolerance:g}", str(steps), str(texts), str(met))
            rows.append([of.dtype, of.whose, *told])
    return rows


def draw_steps(found: Sequence[Steps]) -> "Figure":
    """Draw a histogram for each dtype (below each other) and tolerance."""
    from matplotlib.figure import Figure  # seconds

    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    edges = np.arange(0, MOST_STEPS + 1, _BIN) + 0.5  # 1 to 5, 6 to 10, …
    for axes, of in zip(panels.flat, found, strict=True):
        parts = [of.steps[of.converged], of.steps[~of.converged]]
        share = [np.full(len(part), 100 / len(of.steps)) for part in parts]
        axes.hist(
            parts,
            edges,
            weights=share,
            stacked=True,
            color=["0.35", "#e27026"],
            label=["converged", "gave up"],
        )
        axes.set_title(of.name, fontsize=10)
        axes.grid(axis="y", color="0.9")
        axes.set_axisbelow(True)
    panels[0, 0].legend(frameon=False)
    figure.supxlabel("steps", fontsize=10)
    figure.supylabel("per cent of the graphs", fontsize=10)
    return figure
