"""Time of a training step with centrality, relative to self-attention."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, get_args

import numpy as np
import torch
from torch.nn import functional as F

from papers.gong2019.paper import EPSILON, MAX_ITERATIONS, TIME_RATIO
from papers.gong2019.provenance import VARIANT, missing_artifact
from papers.gong2019.workspace import Artifact, Workspace, study_file
from perron.experiments import read_study
from perron.experiments.records import source_version
from perron.experiments.study import Trial
from perron.files import markdown_table
from perron.models import Classifier
from perron.pooling import CentralityPool, PowerIteration
from perron.solver import Gradient
from perron.text.sampling import Batch, epoch_batches
from perron.training.loop import make_optimizer
from perron.training.prepare import PreparedRun, prepare

TITLE = "Time of a training step"
COLUMNS = ("model", "data", "method", "ms", "ratio", "pooling")
FLAT, DOCUMENTS = "sst2", ("yelp2014", "imdb-25k")  # the first available documents
FLAT_BATCHES, DOCUMENT_BATCHES = 24, 8  # plus one for warmup
DOCUMENT_ROWS = 640  # training rows to read; a batch has at most 64

# Variants of the studies.
REFERENCE = "self-attention"
AVERAGE = "average"  # its pooling takes almost no time
Solver = Literal["direct"] | PowerIteration
SOLVERS: dict[str, Solver] = {
    "centrality, exact": "direct",
    **{
        f"centrality, power iteration, {gradient}": PowerIteration(
            EPSILON, MAX_ITERATIONS, gradient
        )
        for gradient in get_args(Gradient)
    },
}


@dataclass(frozen=True)
class StepTimes:
    """Times of a training step for one kind of model.

    Attributes:
        kind: Kind of model, flat or hierarchical.
        data: Title of the study.
        seconds: Seconds per batch, for each method.
        origin: Data and command of the measurement, as Markdown.
    """

    kind: str
    data: str
    seconds: dict[str, np.ndarray]
    origin: str

    def rows(self) -> list[list[str]]:
        """Return a table row for each method."""
        return [[self.kind, self.data, *self._cells(name)] for name in self.seconds]

    def ratio(self, method: str) -> float:
        """Return the median ratio to self-attention on the same batch."""
        return float(np.median(self.seconds[method] / self.seconds[REFERENCE]))

    def _cells(self, method: str) -> list[str]:
        own = self.seconds[method]
        pooling = 1 - float(np.median(self.seconds[AVERAGE] / own))
        share = f"{100 * pooling:.0f} %" if method != AVERAGE else ""
        milliseconds = f"{1000 * np.median(own):.1f}"
        return [method, milliseconds, f"{self.ratio(method):.2f}", share]


def timing(workspace: Workspace) -> Artifact:
    """Time training steps on real batches, with all methods on each batch."""
    if workspace.only_done:
        advice = "measured times. Leave out --only-done to measure them"
        return missing_artifact("timing", TITLE, advice, COLUMNS)
    results = []
    missing = []
    if reason := workspace.missing(FLAT):
        missing.append(reason)
    else:
        results.append(time_steps(workspace, FLAT, "flat", FLAT_BATCHES))
    overrides = [f"data.max_train_rows={DOCUMENT_ROWS}"]
    for name in DOCUMENTS:
        if reason := workspace.missing(name):
            missing.append(reason)
        else:
            batches = DOCUMENT_BATCHES
            times = time_steps(workspace, name, "hierarchical", batches, overrides)
            results.append(times)
            break
    if not results:
        return missing_artifact("timing", TITLE, ". Missing: ".join(missing), COLUMNS)
    table = [row for times in results for row in times.rows()]
    text = [
        markdown_table(COLUMNS, table),
        *(_conclusion(times) for times in results),
        "`ms` is the median time of a complete step (forward, backward, optimizer). "
        "`ratio` is the median ratio to self-attention on the same batch; all methods "
        "take turns on each batch. `pooling` is the share of the step that average "
        f"pooling does not need. Power iteration uses the paper's ε = {EPSILON:g} and "
        f"at most {MAX_ITERATIONS} iterations. The models start untrained, and all "
        "centrality methods use our connectivity network. Only the ratios are "
        "meaningful: the times are from one machine, on the CPU with "
        f"{torch.get_num_threads()} thread(s), {_load()}torch {torch.__version__}, "
        f"commit {source_version()}.",
        *(times.origin for times in results),
        *(f"Missing: {reason}." for reason in missing),
    ]
    return Artifact("timing", TITLE, "\n\n".join(text) + "\n", [COLUMNS, *table])


def time_steps(
    workspace: Workspace,
    name: str,
    kind: str,
    batches: int,
    overrides: Sequence[str] = (),
) -> StepTimes:
    """Time every method on the same batches of a study's training data.

    Args:
        workspace: Data, options and results.
        name: Name of the study.
        kind: Kind of model, for the table.
        batches: Number of batches to time.
        overrides: Settings with lower precedence than those of ``workspace``.
    """
    study = read_study(study_file(name), [*overrides, *workspace.overrides])
    trials = {key: Trial(study, key, 0, 0) for key in (AVERAGE, REFERENCE, VARIANT)}
    runs = {key: prepare(each.recipe(), workspace.root) for key, each in trials.items()}
    trial, own = trials[VARIANT], runs[VARIANT]
    learners = {key: Learner(run) for key, run in runs.items()}
    methods = {key: learners[key] for key in (AVERAGE, REFERENCE)}
    methods |= dict.fromkeys(SOLVERS, learners[VARIANT])
    settings = own.recipe.training
    size = settings.batch_size
    rows = epoch_batches(own.train.sizes, size, settings.seed, epoch=0)
    full = [batch_rows for batch_rows in rows if len(batch_rows) == size] or rows
    seconds: dict[str, list[float]] = {method: [] for method in methods}
    order = list(methods)
    for batch_rows in islice(cycle(full), batches + 1):
        batch = own.train.batch(batch_rows)
        for method in order:
            if method in SOLVERS:
                set_solver(methods[method].model, SOLVERS[method])
            seconds[method].append(methods[method].step(batch))
        order.append(order.pop(0))  # another method is first on the next batch
    origin = (
        f"{trial.study.title}: {batches} batches of {len(full[0])} texts, data "
        f"fingerprint {own.fingerprint[:16]}, seed {settings.seed}, from the run\n\n"
        f"```sh\n{trial.command}\n```"
    )
    # The first batch warms caches and compiles.
    times = {method: np.array(values[1:]) for method, values in seconds.items()}
    return StepTimes(kind, trial.study.title, times, origin)


class Learner:
    """A model with its optimizer."""

    def __init__(self, prepared: PreparedRun) -> None:
        self.model = prepared.model.train()
        self.settings = prepared.recipe.training
        self.optimizer = make_optimizer(self.model, self.settings)

    def step(self, batch: Batch) -> float:
        """Run a training step on a batch and return its duration in seconds."""
        begin = time.perf_counter()
        loss = F.cross_entropy(self.model(**batch.inputs).logits, batch.labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(
            self.model.parameters(), self.settings.max_grad_norm
        )
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begin


def set_solver(model: Classifier, solver: Solver) -> None:
    """Set the solver of every centrality pool of a model."""
    for module in model.modules():
        if isinstance(module, CentralityPool):
            module.solver = solver


def _conclusion(times: StepTimes) -> str:
    exact, *powers = (times.ratio(method) for method in SOLVERS)
    return (
        f"{times.kind.capitalize()} ({times.data}): a step with exact centrality takes "
        f"{exact:.2f} times as long as one with self-attention, and a step with power "
        f"iteration {min(powers):.2f} to {max(powers):.2f} times as long. The paper "
        f"reports {TIME_RATIO:g} times, on Yelp-2014."
    )


def _load() -> str:
    """Return the load average, if the platform reports it."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, "
