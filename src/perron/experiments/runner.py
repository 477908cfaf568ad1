"""Execution of studies, which can be resumed and shared by several processes."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from perron.errors import PerronError, SettingsError, differences
from perron.experiments.baselines import check_baseline, run_baseline
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
from perron.experiments.study import (
    BaselineName,
    Study,
    Trial,
    aggregator_study,
    all_trials,
)
from perron.files import FolderLockedError, atomic_write, lock_folder, make_folder
from perron.training.callbacks import Callback
from perron.training.loop import make_accelerator
from perron.training.prepare import PreparedRun
from perron.training.recipe import Recipe, read_recipe, recipe_table
from perron.training.run import train
from perron.training.state_cache import EncodingProgress

WAIT_SECONDS = 2.0

T = TypeVar("T")
OnTrial = Callable[[Trial, int, int], Sequence[Callback]]
OnDataReady = Callable[[PreparedRun], None]


def compare(
    recipe: Recipe,
    aggregators: Sequence[str],
    seeds: int,
    folder: Path,
    *,
    baselines: Sequence[BaselineName] = (),
    title: str = "Aggregators",
    root: Path | None = None,
    on_trial: OnTrial | None = None,
    encoding_progress: EncodingProgress | None = None,
) -> tuple[Study, list[RunRecord]]:
    """Train aggregators with several seeds; return the study and its records.

    All aggregators are trained with one seed before the next seed is used, so that
    their times can be compared. The shared recipe is written to the folder as
    recipe.toml.

    Args:
        recipe: Settings shared by all runs.
        aggregators: Names of aggregators, optionally with settings; see
            `aggregator_study`.
        seeds: Number of seeds.
        folder: Folder of the study.
        baselines: Names of baselines to compare the aggregators with; see `Study`.
        title: Title of the study.
        root: Folder of the datasets.
        on_trial: See `run_study`.
        encoding_progress: See `run_study`.
    """
    model = recipe.model.model_copy(update={"sentence_aggregator": None})
    shared = recipe.model_copy(update={"model": model})
    file = folder / RECIPE
    study = aggregator_study(shared, str(file), aggregators, seeds, title, baselines)
    with _remove_if_unused(folder):
        if _is_main_process():
            _write_recipe(shared, file)
        _broadcast(None)  # wait until the file exists
        try:
            records = run_study(
                study,
                folder,
                root=root,
                on_trial=on_trial,
                on_data_ready=_require_test_data,
                encoding_progress=encoding_progress,
            )
        except PerronError:
            if _is_main_process() and not find_records(study, folder):
                file.unlink()  # without a finished run, other settings may be used
            raise
    return study, records


def _write_recipe(recipe: Recipe, file: Path) -> None:
    """Write the recipe, or check that an existing one is the same."""
    if file.exists():
        before = read_recipe(recipe_table(str(file)), where=str(file))
        changed = differences(
            before.model_dump(mode="json"), recipe.model_dump(mode="json")
        )
        if changed:
            raise SettingsError(
                f"{file.parent} contains runs with other settings: "
                f"{'; '.join(changed)}. Choose another folder with --out."
            )
        return
    make_folder(file.parent)
    atomic_write(file, recipe.to_toml().encode())


def _require_test_data(prepared: PreparedRun) -> None:
    if prepared.test is None:
        raise SettingsError(
            "compare requires test data. Add --test-data FILE, or split some off with "
            "--split."
        )


def run_study(
    study: Study,
    folder: Path,
    *,
    root: Path | None = None,
    on_trial: OnTrial | None = None,
    on_data_ready: OnDataReady | None = None,
    encoding_progress: EncodingProgress | None = None,
) -> list[RunRecord]:
    """Run a study, skipping finished runs; return all records.

    A stopped run is resumed. If another process has claimed a run, wait for its result.
    Runs recorded in records.jsonl are not repeated, even if their folders were deleted.
    Under ``torchrun`` or ``accelerate launch``, all processes work on the same run.

    Args:
        study: Study.
        folder: Folder of the study, which contains records.jsonl and one folder per
            run.
        root: Folder of the datasets.
        on_trial: Called before each run with the run, the number of finished runs and
            the total number of runs. Returns the callbacks of the run.
        on_data_ready: Called with the data of each run before its first step. May raise
            an error.
        encoding_progress: Callback for the progress of caching encoder states.
    """
    _check_settings(study)  # fail now rather than after hours
    with _remove_if_unused(folder):
        make_folder(folder)
        _check_data(study, find_records(study, folder), folder, root)
        return _run_all(study, folder, root, on_trial, on_data_ready, encoding_progress)


@contextmanager
def _remove_if_unused(folder: Path) -> Iterator[None]:
    """On an error, remove a folder that was created in the block and holds no run."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):  # keep folders that contain other files
            if created and all(path.suffix == ".lock" for path in folder.iterdir()):
                for path in folder.iterdir():
                    path.unlink()
                for path in created:
                    path.rmdir()
        raise


def _run_all(
    study: Study,
    folder: Path,
    root: Path | None,
    on_trial: OnTrial | None,
    on_data_ready: OnDataReady | None,
    encoding_progress: EncodingProgress | None,
) -> list[RunRecord]:
    """Do the remaining runs one at a time."""
    while True:
        with ExitStack() as claim:
            done: dict[str, RunRecord] = {}
            todo: list[Trial] = []
            trial = None
            if _is_main_process():
                done = find_records(study, folder)
                todo = missing_trials(study, done)
                if done:
                    _write_all_records(study, done, folder)
                trial = _claim_first_free(todo, folder, claim)
            is_finished, trial = _broadcast((not todo, trial))
            if is_finished:
                return _broadcast(study_records(study, done))
            if trial is None:
                time.sleep(WAIT_SECONDS)
                continue
            callbacks: Sequence[Callback] = ()
            if on_trial is not None and _is_main_process():
                num_done = len(study_records(study, done))
                callbacks = on_trial(trial, num_done, study.num_runs)
            _run(trial, folder, root, callbacks, on_data_ready, encoding_progress)


def _is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _broadcast(value: T) -> T:
    """Return the main process's value in every process of a distributed launch."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return value
    from accelerate.utils import broadcast_object_list

    make_accelerator("fp32")  # initializes the process group
    values = [value]
    broadcast_object_list(values)
    return values[0]


def _claim_first_free(
    todo: Sequence[Trial], folder: Path, claim: ExitStack
) -> Trial | None:
    """Lock and return the first run that no other process has claimed, if any."""
    for trial in todo:
        try:
            done = _claim(trial, folder, claim)
        except FolderLockedError:
            continue
        if done is None:
            return trial
        claim.close()  # another process has finished it in the meantime
    return None


def _claim(trial: Trial, folder: Path, claim: ExitStack) -> RunRecord | None:
    """Lock a run; return its record if it has finished.

    Raises:
        FolderLockedError: If another process has claimed the run.
    """
    source_version()  # cached now, in case the repository changes during the run
    run_folder = trial.run_folder(folder)
    make_folder(folder)
    claim.enter_context(lock_folder(folder, trial.lock_name))
    for record in read_study_records(run_folder / RECORD, trial.study, folder):
        if record.command == trial.command:
            return record
        raise PerronError(
            f"{run_folder} contains a different run: {record.command}. Choose another "
            "folder with --out, or delete this one."
        )
    return None


def _run(
    trial: Trial,
    folder: Path,
    root: Path | None,
    callbacks: Sequence[Callback],
    on_data_ready: OnDataReady | None = None,
    encoding_progress: EncodingProgress | None = None,
) -> RunRecord:
    """Start or resume a claimed run; return its record."""
    run_folder = trial.run_folder(folder)
    if trial.baseline is not None:
        record = run_baseline(trial, root, encoding_progress)
        if _is_main_process():
            make_folder(run_folder)
            write_record(run_folder, record)
        return record
    result = train(
        trial.recipe(),
        run_folder,
        root=root,
        resume=True,
        callbacks=callbacks,
        on_data_ready=on_data_ready,
        encoding_progress=encoding_progress,
    )
    record = make_record(
        result,
        run_folder,
        trial.command,
        trial.variant,
        trial.point,
        trial.data_bytes(root),
    )
    if _is_main_process():
        write_record(run_folder, record)
    return record


def run_trial(
    trial: Trial,
    folder: Path,
    *,
    root: Path | None = None,
    callbacks: Callable[[], Sequence[Callback]] = tuple,
) -> RunRecord:
    """Start or resume one run, unless it has finished; return its record.

    Args:
        trial: Run.
        folder: Folder of the study.
        root: Folder of the datasets.
        callbacks: Function that returns the callbacks of the run, called when the run
            starts.

    Raises:
        FolderLockedError: If another process has claimed the run.
    """
    with ExitStack() as claim:
        record = _claim(trial, folder, claim)
        if record is None:
            return _run(trial, folder, root, callbacks())
        _check_same_data(trial, record, folder, root)
        return record


def _check_settings(study: Study) -> None:
    """Raise an error if settings are invalid or two variants would share a folder."""
    owners: dict[str, str] = {}
    for trial in all_trials(study):
        recipe = trial.recipe()
        if trial.baseline is not None:
            check_baseline(trial.baseline, recipe)
        other = owners.setdefault(trial.folder_name, trial.variant)
        if other != trial.variant:
            raise SettingsError(
                f"{study.title}: the names of variants {other!r} and "
                f"{trial.variant!r} lead to the same folder. Rename one of them."
            )


def _check_data(
    study: Study, done: Mapping[str, RunRecord], folder: Path, root: Path | None
) -> None:
    """Raise an error if the data files have changed since a finished run."""
    for trial in all_trials(study):
        if trial.command in done:
            _check_same_data(trial, done[trial.command], folder, root)


def _check_same_data(
    trial: Trial, record: RunRecord, folder: Path, root: Path | None
) -> None:
    now = trial.data_bytes(root)
    if None not in (record.data_bytes, now) and record.data_bytes != now:
        raise PerronError(
            f"{folder}: {trial.variant} with seed {trial.seed} was trained on "
            f"{record.data_bytes:,} bytes of data, but the files now have {now:,}. "
            "Choose another folder with --out, or delete the contents of this one."
        )


def _write_all_records(
    study: Study, done: Mapping[str, RunRecord], folder: Path
) -> None:
    """Write records.jsonl, with the records of the study first.

    Other records belong to seeds or variants of earlier calls.
    """
    own = study_records(study, done)
    commands = {record.command for record in own}
    others = [record for record in done.values() if record.command not in commands]
    write_records(folder / RECORDS, [*own, *others])
