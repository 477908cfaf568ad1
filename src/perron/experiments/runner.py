"""Run what a study asks for; several processes may do so at once."""

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perron.errors import DataError, PerronError, SettingsError
from perron.experiments.records import (
    RECORD,
    Record,
    read_records,
    record_of,
    source_version,
    write_record,
    write_records,
)
from perron.experiments.study import Study
from perron.files import Busy, locked, make_folder
from perron.text.datasets import source_files
from perron.training.callbacks import Watcher
from perron.training.recipe import Recipe, read_recipe, recipe_table
from perron.training.run import train

RECORDS = "records.jsonl"
WAIT_SECONDS = 2.0


@dataclass(frozen=True)
class Trial:
    """One run of a study."""

    study: Study
    variant: str
    point: int
    seed: int

    @property
    def command(self) -> str:
        """What does this run alone."""
        settings = self.study.overrides(self.variant, self.point, self.seed)
        words = ["perron", "train", self.study.recipe]
        words += [word for setting in settings for word in ("--set", setting)]
        return shlex.join(words)

    @property
    def folder(self) -> str:
        """The name of its folder."""
        name = re.sub(r"[^\w.=-]+", "-", self.variant)
        return f"{name}-point{self.point}-seed{self.seed}"

    def recipe(self) -> Recipe:
        """Return its settings."""
        settings = self.study.overrides(self.variant, self.point, self.seed)
        where = f"{self.study.title}, {self.variant}"
        return read_recipe(recipe_table(self.study.recipe), settings, where)

    def data_bytes(self, root: Path | None) -> int | None:
        """Return the size of all files of its data; None if they are not there."""
        try:
            files = source_files(self.recipe().data, root)
        except DataError:
            return None
        return sum(path.stat().st_size for path in files) or None


OnTrial = Callable[[Trial, int, int], Sequence[Watcher]]


def run_study(
    study: Study,
    folder: Path,
    *,
    root: Path | None = None,
    on_trial: OnTrial | None = None,
) -> list[Record]:
    """Return the records of all runs; those that are there are not run again.

    A run that was stopped goes on. What another process is running is left to it and
    waited for. The folder's records.jsonl stands for runs whose folders are gone.

    Args:
        study: what to run.
        folder: holds a folder for each run, and records.jsonl.
        root: folder of the datasets.
        on_trial: told which run begins, how many are done and how many there are; gives
            its watchers.
    """
    _check(study)  # a mistake is told before hours have passed
    make_folder(folder)
    _check_data(study, find_records(study, folder), folder, root)
    while todo := missing_trials(study, done := find_records(study, folder)):
        _write(study, done, folder)  # so that they can be kept as they come
        count = len(_own(study, done))
        if not _run_first_free(todo, count, folder, root, on_trial):
            time.sleep(WAIT_SECONDS)
    return _write(study, done, folder)


def _check(study: Study) -> None:
    """Raise if a run has bad settings, or two variants would share a folder."""
    owners: dict[str, str] = {}
    for trial in _all_trials(study):
        trial.recipe()
        other = owners.setdefault(trial.folder, trial.variant)
        if other != trial.variant:
            raise SettingsError(
                f"{study.title}: the variants {other!r} and {trial.variant!r} would "
                "have the same folders: give one of them another name"
            )


def _check_data(
    study: Study, done: Mapping[str, Record], folder: Path, root: Path | None
) -> None:
    """Raise if a run that is done was trained on other files than there are now."""
    for trial in _all_trials(study):
        if trial.command in done:
            _refuse_other_data(trial, done[trial.command], folder, root)


def _refuse_other_data(
    trial: Trial, record: Record, folder: Path, root: Path | None
) -> None:
    now = trial.data_bytes(root)
    if None not in (record.data_bytes, now) and record.data_bytes != now:
        raise PerronError(
            f"{folder}: {trial.variant} with seed {trial.seed} was trained on "
            f"{record.data_bytes:,} bytes of data, and now there are {now:,}. Choose "
            "another folder with --out, or remove what is in it"
        )


def _write(study: Study, done: Mapping[str, Record], folder: Path) -> list[Record]:
    """Write all records, and return the study's own.

    Others are kept: those of seeds or variants that this time were not asked for.
    """
    own = _own(study, done)
    mine = {record.command for record in own}
    others = [record for record in done.values() if record.command not in mine]
    write_records(folder / RECORDS, [*own, *others])
    return own


def _own(study: Study, done: Mapping[str, Record]) -> list[Record]:
    """Return the records of the study's runs, in its order.

    A run is known by its command: what its variant is called, and which point of the
    grid it is, may have changed since.
    """
    return [
        replace(done[trial.command], variant=trial.variant, point=trial.point)
        for trial in wanted_trials(study, done)
        if trial.command in done
    ]


def done_records(study: Study, folder: Path) -> list[Record]:
    """Return the records of those of the study's runs that are done, in its order."""
    return _own(study, find_records(study, folder))


def find_records(study: Study, folder: Path) -> dict[str, Record]:
    """Return all records in the folder by their commands, also of other settings."""
    found = {record.command: record for record in read_records(folder / RECORDS)}
    for trial in _all_trials(study):
        for record in read_records(folder / trial.folder / RECORD):
            if record.command == trial.command:
                found[record.command] = record
    return found


def wanted_trials(study: Study, done: Mapping[str, Record]) -> list[Trial]:
    """Return the runs that belong to a study, as far as is known by now."""
    chosen = {name: best_point(study, name, done) for name in study.variants}
    tuning = [
        Trial(study, name, point, 0)
        for point in range(len(study.grid))
        for name in study.variants
    ]
    others = [
        Trial(study, name, point, seed)
        for seed in range(1, max(map(study.seeds_of, study.variants)))
        for name, point in chosen.items()
        if point is not None and seed < study.seeds_of(name)
    ]
    return tuning + others


def missing_trials(study: Study, done: Mapping[str, Record]) -> list[Trial]:
    """Return the runs that are not done."""
    return [t for t in wanted_trials(study, done) if t.command not in done]


def best_point(study: Study, variant: str, done: Mapping[str, Record]) -> int | None:
    """Return the point of the grid that is best on dev; None if not all were run."""
    found = [
        done.get(Trial(study, variant, point, 0).command)
        for point in range(len(study.grid))
    ]
    if any(record is None for record in found):
        return None
    dev = [record.dev for record in found if record is not None]
    return dev.index(max(dev))  # of equals the first


def _all_trials(study: Study) -> Iterator[Trial]:
    for name in study.variants:
        for point in range(len(study.grid)):
            for seed in range(study.seeds_of(name)):
                yield Trial(study, name, point, seed)


def _run_first_free(
    todo: Sequence[Trial],
    done: int,
    folder: Path,
    root: Path | None,
    on_trial: OnTrial | None,
) -> bool:
    """Do the first run that no other process is doing; return if there was one."""
    for trial in todo:
        watchers = _Told(on_trial, trial, done, trial.study.runs)
        try:
            run_trial(trial, folder, root=root, watchers=watchers)
        except Busy:
            continue
        return True
    return False


def run_trial(
    trial: Trial,
    folder: Path,
    *,
    root: Path | None = None,
    watchers: Callable[[], Sequence[Watcher]] = tuple,
) -> Record:
    """Do one run, or go on with it, unless it is done; return its record.

    Args:
        trial: the run.
        folder: of the study.
        root: folder of the datasets.
        watchers: asked for when the run begins.

    Raises:
        Busy: another process is doing it.
    """
    place = folder / trial.folder
    make_folder(place)
    with locked(place, ".trial.lock"):
        for record in read_records(place / RECORD):
            if record.command == trial.command:
                _refuse_other_data(trial, record, folder, root)
                return record
            raise PerronError(
                f"{place}: holds another run, {record.command}. Choose another folder "
                "with --out, or remove it"
            )
        recipe = trial.recipe()
        source_version()  # of the code that runs now, whatever is committed meanwhile
        result = train(recipe, place, root=root, resume=True, watchers=watchers())
        record = record_of(
            result,
            place,
            trial.command,
            trial.variant,
            trial.point,
            trial.data_bytes(root),
        )
        write_record(place, record)
        return record


@dataclass(frozen=True)
class _Told:
    """Says that a run begins, when it does."""

    on_trial: OnTrial | None
    trial: Trial
    done: int
    known: int

    def __call__(self) -> Sequence[Watcher]:
        if self.on_trial is None:
            return ()
        return self.on_trial(self.trial, self.done, self.known)
