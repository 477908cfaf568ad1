"""How long a step of training takes with centrality, to one with self-attention."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Literal, get_args

import numpy as np
import torch
from torch.nn import functional as F

from papers.gong2019.paper import EPSILON, MOST_STEPS, TIME_RATIO
from papers.gong2019.provenance import VARIANT, missing_piece
from papers.gong2019.work import Piece, Work, study_file
from perron.experiments import read_study
from perron.experiments.records import source_version
from perron.experiments.study import Trial
from perron.files import markdown_table
from perron.models import Classifier
from perron.pooling import CentralityPool, PowerSettings
from perron.solver import Gradient
from perron.text.sampling import Batch, epoch_batches
from perron.training.loop import make_optimiser
from perron.training.prepare import Prepared, prepare

TITLE = "Timing: a step of training"
COLUMNS = ("model", "data", "weights by", "ms", "ratio", "pooling")
FLAT, DOCUMENTS = "sst2", ("yelp2014", "imdb-25k")  # of documents the first there is
FLAT_BATCHES, DOCUMENT_BATCHES = 24, 8  # timed; one more warms up
DOCUMENT_ROWS = 640  # read to train on; a batch has 64 of them or fewer

REFERENCE = "self-attention"  # these are variants of the studies
AVERAGE = "average"  # what a step takes when pooling takes next to nothing
Solver = Literal["direct"] | PowerSettings
SOLVERS: dict[str, Solver] = {
    "centrality, exact": "direct",
    **{
        f"centrality, power method, {gradient}": PowerSettings(
            EPSILON, MOST_STEPS, gradient
        )
        for gradient in get_args(Gradient)
    },
}


@dataclass(frozen=True)
class Timed:
    """What a step takes, for one kind of model.

    Attributes:
        kind: flat or hierarchical.
        data: title of the study.
        seconds: of each way, for each batch.
        told: where it comes from.
    """

    kind: str
    data: str
    seconds: dict[str, np.ndarray]
    told: str

    def rows(self) -> list[list[str]]:
        """Return a row of numbers for each way."""
        return [[self.kind, self.data, *self._row(way)] for way in self.seconds]

    def ratio(self, way: str) -> float:
        """Return the median ratio to self-attention on the same batch."""
        return float(np.median(self.seconds[way] / self.seconds[REFERENCE]))

    def _row(self, way: str) -> list[str]:
        own = self.seconds[way]
        pooling = 1 - float(np.median(self.seconds[AVERAGE] / own))
        shown = f"{100 * pooling:.0f} %" if way != AVERAGE else ""
        milliseconds = f"{1000 * np.median(own):.1f}"
        return [way, milliseconds, f"{self.ratio(way):.2f}", shown]


def timing(work: Work) -> Piece:
    """Time steps on real batches, all ways in turn on each batch."""
    if work.only_done:
        told = "leave out --only-done, as this measures anew each time"
        return missing_piece("timing", TITLE, told, COLUMNS)
    timed = []
    missing = []
    if reason := work.missing(FLAT):
        missing.append(f"{reason}.")
    else:
        timed.append(time_steps(work, FLAT, "flat", FLAT_BATCHES))
    rows = [f"data.train_rows={DOCUMENT_ROWS}"]
    for name in DOCUMENTS:
        if reason := work.missing(name):
            missing.append(f"{reason}.")
        else:
            timed.append(time_steps(work, name, "hierarchical", DOCUMENT_BATCHES, rows))
            break
    if not timed:
        return missing_piece("timing", TITLE, " ".join(missing), COLUMNS)
    table = [row for of in timed for row in of.rows()]
    text = [
        markdown_table(COLUMNS, table),
        *(_meaning(of) for of in timed),
        "ms: of a whole step (forward, backward, optimiser), the median of the "
        "batches. ratio: to self-attention's time on the same batch, the median; all "
        "ways take turns on each batch. pooling: the share of the step that average "
        f"pooling does not need. The power method has the paper's ε = {EPSILON:g} and "
        f"at most {MOST_STEPS} steps. The models begin untrained, and all ways share "
        "our network for the edges. The ratios count: the times are those of one "
        f"machine, on the CPU with {torch.get_num_threads()} thread(s), {_load()}torch "
        f"{torch.__version__}, commit {source_version()}.",
        *(of.told for of in timed),
        *(f"Missing: {reason}" for reason in missing),
    ]
    return Piece("timing", TITLE, "\n\n".join(text) + "\n", [COLUMNS, *table])


def time_steps(
    work: Work, name: str, kind: str, batches: int, overrides: Sequence[str] = ()
) -> Timed:
    """Time every way on the same batches of a study's training data.

    Args:
        work: where everything is.
        name: of the study.
        kind: of the model.
        batches: how many are timed.
        overrides: settings that those of ``work`` may change again.
    """
    study = read_study(study_file(name), [*overrides, *work.overrides])
    trials = {key: Trial(study, key, 0, 0) for key in (AVERAGE, REFERENCE, VARIANT)}
    prepared = {key: prepare(of.recipe(), work.root) for key, of in trials.items()}
    trial, own = trials[VARIANT], prepared[VARIANT]
    learners = {key: Learner(of) for key, of in prepared.items()}
    ways = {key: learners[key] for key in (AVERAGE, REFERENCE)}
    ways |= dict.fromkeys(SOLVERS, learners[VARIANT])
    settings = own.recipe.training
    size = settings.batch_size
    rows = epoch_batches(own.train.sizes, size, settings.seed, epoch=0)
    full = [part for part in rows if len(part) == size] or rows
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    turns = list(ways)
    for part in islice(cycle(full), batches + 1):
        batch = own.train.batch(part)
        for way in turns:
            if way in SOLVERS:
                use_solver(ways[way].model, SOLVERS[way])
            seconds[way].append(ways[way].step(batch))
        turns.append(turns.pop(0))  # none is always the first to see a batch
    told = (
        f"{trial.study.title}: {batches} batches of {len(full[0])} texts, fingerprint "
        f"{own.fingerprint[:16]}, seed {settings.seed}, of the run\n\n"
        f"```sh\n{trial.command}\n```"
    )
    # The first batch of each is for caches and compilation.
    times = {way: np.array(values[1:]) for way, values in seconds.items()}
    return Timed(kind, trial.study.title, times, told)


class Learner:
    """A model with its optimiser."""

    def __init__(self, prepared: Prepared) -> None:
        self.model = prepared.model.train()
        self.settings = prepared.recipe.training
        self.optimiser = make_optimiser(self.model, self.settings)

    def step(self, batch: Batch) -> float:
        """Learn from a batch as in training; return the seconds."""
        begin = time.perf_counter()
        loss = F.cross_entropy(self.model(**batch.inputs).logits, batch.labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        return time.perf_counter() - begin


def use_solver(model: Classifier, solver: Solver) -> None:
    """Let every level of a model find its weights in this way."""
    for part in model.modules():
        if isinstance(part, CentralityPool):
            part.solver = solver


def _meaning(of: Timed) -> str:
    ratios = {way: of.ratio(way) for way in SOLVERS}
    exact, *powers = ratios.values()
    return (
        f"{of.kind.capitalize()} ({of.data}): a step with exact centrality takes "
        f"{exact:.2f} times one with self-attention, with the power method "
        f"{min(powers):.2f} to {max(powers):.2f} times; the paper has "
        f"{TIME_RATIO:g} times, on Yelp-2014."
    )


def _load() -> str:
    """Say how busy the machine is, where it can be asked."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, "
