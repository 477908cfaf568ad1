"""Runs of a study, resumable and shared by several processes."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from perron.errors import PerronError, SettingsError, differences
from perron.experiments.records import (
    RECIPE,
    RECORD,
    RECORDS,
    RunRecord,
    find_records,
    make_record,
    missing_trials,
    read_study_records,
    source_version,
    study_records,
    write_record,
    write_records,
)
from perron.experiments.study import Study, Trial, aggregator_study, all_trials
from perron.files import FolderLockedError, atomic_write, lock_folder, make_folder
from perron.training.callbacks import Callback
from perron.training.loop import make_accelerator
from perron.training.prepare import PreparedRun
from perron.training.recipe import Recipe, read_recipe, recipe_table
from perron.training.run import train

WAIT_SECONDS = 2.0

Shared = TypeVar("Shared")


OnTrial = Callable[[Trial, int, int], Sequence[Callback]]
OnDataReady = Callable[[PreparedRun], None]


def compare(
    recipe: Recipe,
    aggregators: Sequence[str],
    seeds: int,
    folder: Path,
    *,
    title: str = "Aggregators",
    root: Path | None = None,
    on_trial: OnTrial | None = None,
) -> tuple[Study, list[RunRecord]]:
    """Train aggregators with several seeds; return the study and its records.

    Aggregators take turns within a seed, so that their times can be compared. The
    folder gets the recipe that they share, as recipe.toml.

    Args:
        recipe: Settings that all runs share.
        aggregators: Names, with options where needed, see `aggregator_study`.
        seeds: Number of seeds.
        folder: Folder of the study.
        title: Title of the study.
        root: Folder of the datasets.
        on_trial: See `run_study`.
    """
    model = recipe.model.model_copy(update={"sentence_aggregator": None})
    shared = recipe.model_copy(update={"model": model})
    file = folder / RECIPE
    study = aggregator_study(shared, str(file), aggregators, seeds, title)
    with _removed_if_unused(folder):
        if _is_main():
            _keep_recipe(shared, file)
        _broadcast(None)  # the file is there before others read it
        try:
            records = run_study(
                study, folder, root=root, on_trial=on_trial, on_data_ready=_check_test
            )
        except PerronError:
            if _is_main() and not find_records(study, folder):
                file.unlink()  # it would refuse other settings, and no run has ended
            raise
    return study, records


def _keep_recipe(recipe: Recipe, file: Path) -> None:
    """Write the recipe; one that is there must be the same."""
    if file.exists():
        before = read_recipe(recipe_table(str(file)), where=str(file))
        changed = differences(
            before.model_dump(mode="json"), recipe.model_dump(mode="json")
        )
        if changed:
            raise SettingsError(
                f"{file.parent} holds runs with other settings: {'; '.join(changed)}. "
                "Choose another folder with --out."
            )
        return
    make_folder(file.parent)
    atomic_write(file, recipe.to_toml().encode())


def _check_test(prepared: PreparedRun) -> None:
    if prepared.test is None:
        raise SettingsError("compare needs test data, got none. Name it or split some.")


def run_study(
    study: Study,
    folder: Path,
    *,
    root: Path | None = None,
    on_trial: OnTrial | None = None,
    on_data_ready: OnDataReady | None = None,
) -> list[RunRecord]:
    """Run all runs of a study that are not done yet; return all records.

    A stopped run is resumed. A run that another process is doing is left to it and
    waited for. The folder's records.jsonl replaces runs whose folders are gone. Under
    ``torchrun`` or ``accelerate launch`` all processes do each run together.

    Args:
        study: Runs to do.
        folder: Folder of the study, with a folder for each run and records.jsonl.
        root: Folder of the datasets.
        on_trial: Called before each run with the run, the number of runs that are done
            and the number of all runs. Returns the callbacks of the run.
        on_data_ready: Called with the data of each run before its first step. May raise
            to refuse them.
    """
    _check(study)  # report a mistake before hours have passed
    with _removed_if_unused(folder):
        make_folder(folder)
        _check_data(study, find_records(study, folder), folder, root)
        return _run_all(study, folder, root, on_trial, on_data_ready)


@contextmanager
def _removed_if_unused(folder: Path) -> Iterator[None]:
    """Remove a folder that is made inside and stays without a run, on an error."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something is in a folder: leave it
            if made and all(path.suffix == ".lock" for path in folder.iterdir()):
                for path in folder.iterdir():
                    path.unlink()
                for path in made:
                    path.rmdir()
        raise


def _run_all(
    study: Study,
    folder: Path,
    root: Path | None,
    on_trial: OnTrial | None,
    on_data_ready: OnDataReady | None,
) -> list[RunRecord]:
    """Do the runs one by one, as long as there are some."""
    while True:
        with ExitStack() as claim:
            done: dict[str, RunRecord] = {}
            todo: list[Trial] = []
            trial = None
            if _is_main():
                done = find_records(study, folder)
                todo = missing_trials(study, done)
                if done:
                    _write(study, done, folder)  # they can be kept as they come
                trial = _claim_first_free(todo, folder, claim)
            is_over, trial = _broadcast((not todo, trial))
            if is_over:
                return _broadcast(study_records(study, done))
            if trial is None:
                time.sleep(WAIT_SECONDS)
                continue
            callbacks: Sequence[Callback] = ()
            if on_trial is not None and _is_main():
                callbacks = on_trial(
                    trial, len(study_records(study, done)), study.num_runs
                )
            _run(trial, folder, root, callbacks, on_data_ready)


def _is_main() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _broadcast(value: Shared) -> Shared:
    """Return the main process's value, in every process of a distributed launch."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return value
    from accelerate.utils import broadcast_object_list

    make_accelerator("fp32")  # joins the processes
    values = [value]
    broadcast_object_list(values)
    return values[0]


def _claim_first_free(
    todo: Sequence[Trial], folder: Path, claim: ExitStack
) -> Trial | None:
    """Lock the first run that no other process is doing; return it, if any."""
    for trial in todo:
        try:
            done = _claim(trial, folder, claim)
        except FolderLockedError:
            continue
        if done is None:
            return trial
        claim.close()  # another process has finished it meanwhile
    return None


def _claim(trial: Trial, folder: Path, claim: ExitStack) -> RunRecord | None:
    """Lock a run; return its record if it is done.

    Raises:
        FolderLockedError: Another process is doing it.
    """
    source_version()  # of the code that runs now, whatever is committed meanwhile
    place = trial.run_folder(folder)
    make_folder(folder)
    claim.enter_context(lock_folder(folder, trial.lock_name))
    for record in read_study_records(place / RECORD, trial.study, folder):
        if record.command == trial.command:
            return record
        raise PerronError(
            f"{place} holds another run, {record.command}. Choose another folder with "
            "--out, or remove it."
        )
    return None


def _run(
    trial: Trial,
    folder: Path,
    root: Path | None,
    callbacks: Sequence[Callback],
    on_data_ready: OnDataReady | None = None,
) -> RunRecord:
    """Do or resume a run that is claimed; return its record."""
    place = trial.run_folder(folder)
    result = train(
        trial.recipe(),
        place,
        root=root,
        resume=True,
        callbacks=callbacks,
        on_data_ready=on_data_ready,
    )
    record = make_record(
        result,
        place,
        trial.command,
        trial.variant,
        trial.point,
        trial.data_bytes(root),
    )
    if _is_main():
        write_record(place, record)
    return record


def run_trial(
    trial: Trial,
    folder: Path,
    *,
    root: Path | None = None,
    callbacks: Callable[[], Sequence[Callback]] = tuple,
) -> RunRecord:
    """Do or resume one run, unless it is done; return its record.

    Args:
        trial: The run.
        folder: Folder of the study.
        root: Folder of the datasets.
        callbacks: Returns the callbacks of the run. Called when the run begins.

    Raises:
        FolderLockedError: Another process is doing it.
    """
    with ExitStack() as claim:
        record = _claim(trial, folder, claim)
        if record is None:
            return _run(trial, folder, root, callbacks())
        _refuse_other_data(trial, record, folder, root)
        return record


def _check(study: Study) -> None:
    """Raise if a run has bad settings, or two variants would share a folder."""
    owners: dict[str, str] = {}
    for trial in all_trials(study):
        trial.recipe()
        other = owners.setdefault(trial.folder_name, trial.variant)
        if other != trial.variant:
            raise SettingsError(
                f"{study.title}: the variants {other!r} and {trial.variant!r} would "
                "have the same folders: give one of them another name"
            )


def _check_data(
    study: Study, done: Mapping[str, RunRecord], folder: Path, root: Path | None
) -> None:
    """Raise if a run that is done was trained on other files than there are now."""
    for trial in all_trials(study):
        if trial.command in done:
            _refuse_other_data(trial, done[trial.command], folder, root)


def _refuse_other_data(
    trial: Trial, record: RunRecord, folder: Path, root: Path | None
) -> None:
    now = trial.data_bytes(root)
    if None not in (record.data_bytes, now) and record.data_bytes != now:
        raise PerronError(
            f"{folder}: {trial.variant} with seed {trial.seed} was trained on "
            f"{record.data_bytes:,} bytes of data, and now there are {now:,}. Choose "
            "another folder with --out, or remove what is in it"
        )


def _write(study: Study, done: Mapping[str, RunRecord], folder: Path) -> None:
    """Write all records, those of the study first.

    The others belong to seeds or variants that were asked for at another time.
    """
    own = study_records(study, done)
    mine = {record.command for record in own}
    others = [record for record in done.values() if record.command not in mine]
    write_records(folder / RECORDS, [*own, *others])
