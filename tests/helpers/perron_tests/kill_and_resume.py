"""Kill a training run at various moments, resume it, and print the outcome.

Run by test_resume.py in a separate process. Each run is a forked child, so that torch
is imported only once. It is killed by the system and has no chance to clean up. Prints
one line per moment: its name, the exit status of the killed child, and whether the
resumed run ended with the same bytes as an uninterrupted run. Some moments are repeated
in a run that averages its weights and has a schedule relative to its length. A killed
run must hold a complete model that the uninterrupted run also had, or no model in its
first epoch.
"""

import hashlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import torch

import perron
from perron import files
from perron.errors import DataError
from perron.training import read_recipe, train
from perron.training.callbacks import Callback
from perron.training.state import TrainingInterrupted
from perron_tests.training import tiny_table, write_texts

Disturbance = Callable[[], list[Callback]]


def kill() -> None:
    """Kill this process immediately, as a power failure would."""
    os.kill(os.getpid(), signal.SIGKILL)


class AtStep(Callback):
    """Calls a function after a number of steps."""

    def __init__(self, step, action):
        self.step, self.action = step, action

    def on_step(self, loop):
        if loop.state.step == self.step:
            self.action()


class BestModels(Callback):
    """Collects the models in the folder of a run after each epoch."""

    def __init__(self, folder):
        self.path = folder / "model.safetensors"
        self.seen = set()

    def on_epoch_begin(self, loop, steps):
        if loop.state.epoch:
            self.seen.add(self.path.read_bytes())

    def on_train_end(self, loop):
        self.seen.add(self.path.read_bytes())


def at_step(step: int, action: Callable[[], None]) -> Disturbance:
    return lambda: [AtStep(step, action)]


def in_write(number: int, name: str, half: bool) -> Disturbance:
    """Kill while a file is written: after half of it, or just before it is renamed."""

    def disturb() -> list[Callback]:
        real, count = os.fsync, [0]

        def fsync(handle: int) -> None:
            written = os.readlink(f"/proc/self/fd/{handle}")
            if f".{name}" in written:
                count[0] += 1
                if count[0] == number:
                    if half:
                        os.truncate(handle, os.fstat(handle).st_size // 2)
                    real(handle)
                    kill()
            real(handle)

        files.os.fsync = fsync
        return []

    return disturb


def at_rename(number: int, name: str, after: bool) -> Disturbance:
    """Kill just before or after a file is renamed."""

    def disturb() -> list[Callback]:
        real, count = Path.replace, [0]

        def replace(self: Path, target: Path) -> Path:
            count[0] += Path(target).name.startswith(name)
            is_match = count[0] == number and Path(target).name.startswith(name)
            if is_match and not after:
                kill()
            result = real(self, target)
            if is_match:
                kill()
            return result

        Path.replace = replace
        return []

    return disturb


def disk_full() -> list[Callback]:
    """Limit the size of files to half a checkpoint."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return [AtStep(30, limit)]


MOMENTS: dict[str, Disturbance] = {
    "before the first checkpoint": in_write(1, "checkpoint", half=True),
    "in the first epoch": at_step(7, kill),
    "in a later epoch": at_step(31, kill),
    "half of a checkpoint": in_write(9, "checkpoint", half=True),
    "before a checkpoint is renamed": in_write(20, "checkpoint", half=False),
    "half of the best weights": in_write(1, "best", half=True),
    "between best weights and checkpoint": at_rename(1, "best-", after=True),
    "between checkpoint and first model": at_rename(1, "model.", after=False),
    "between checkpoint and next model": at_rename(2, "model.", after=False),
    "before the first model is complete": at_rename(1, "model.", after=True),
    "before the first model has a configuration": in_write(1, "config", half=True),
    "while the first model card is written": in_write(1, "README", half=True),
    "while the next model card is written": in_write(2, "README", half=False),
    "while the tokenizer is written": in_write(1, "tokenizer", half=True),
    "while the result is written": in_write(1, "result.json", half=False),
    "SIGTERM": at_step(17, lambda: os.kill(os.getpid(), signal.SIGTERM)),
    "SIGINT": at_step(18, lambda: os.kill(os.getpid(), signal.SIGINT)),
    "disk full": disk_full,
}
AVERAGED = ("in a later epoch", "between best weights and checkpoint", "SIGTERM")


def run_child(recipe, folder: Path, disturb: Disturbance) -> int:
    """Train in a forked process; return its exit status."""
    process = os.fork()
    if process == 0:
        status = 0
        try:
            train(recipe, folder, resume=True, callbacks=disturb())
        except TrainingInterrupted as stopped:
            status = 128 + stopped.signal_number
        except DataError as error:
            status = 1
            (folder / "error.txt").write_text(str(error))
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            status = 70
        os._exit(status)
    _, wait_status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(wait_status)


def digest(folder: Path) -> str:
    """Return a hash of the weights and metrics of a run, without times."""
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes())
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        del record["seconds"], record["texts_per_second"]
        digest.update(json.dumps(record).encode())
    return digest.hexdigest()


def main() -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    folder = Path(sys.argv[1])
    table = tiny_table(write_texts(folder / "texts.csv"))
    recipe = read_recipe(table)
    # In this process, so that forks inherit compiled kernels and imported modules.
    models = BestModels(folder / "uninterrupted")
    train(recipe, folder / "uninterrupted", callbacks=[models])
    assert len(models.seen) > 1  # a model was replaced by a better one
    expected = digest(folder / "uninterrupted")
    status = run_child(recipe, folder / "again", lambda: [])
    print(f"again|{status}|{digest(folder / 'again') == expected}")
    for name, disturb in MOMENTS.items():
        kill_and_resume(recipe, folder, name, disturb, expected, models.seen)
    # A decay of 0.8 takes effect from step 37 on, which is in the third epoch.
    recipe = read_recipe(
        table,
        [
            "training.ema_decay=0.8",
            "training.lr_scheduler_type=linear",
            "training.warmup_ratio=0.2",
            "model.embedding.freeze=true",  # checkpoints leave frozen weights out
            "training.calibrate=true",
        ],
    )
    models = BestModels(folder / "averaged")
    train(recipe, folder / "averaged", callbacks=[models])
    averaged = digest(folder / "averaged")
    for name in AVERAGED:
        moment = f"averaged, {name}"
        kill_and_resume(recipe, folder, moment, MOMENTS[name], averaged, models.seen)
    assert averaged != expected


def kill_and_resume(
    recipe,
    folder: Path,
    name: str,
    disturb: Disturbance,
    expected: str,
    models: Collection[bytes],
) -> None:
    """Disturb a run, resume it, and print the outcome."""
    run_folder = folder / name.replace(" ", "-")
    status = run_child(recipe, run_folder, disturb)
    finished = (run_folder / "result.json").exists()
    if (run_folder / "config.json").exists():  # the model must be complete
        perron.load(run_folder).predict(["a fine film"])
        assert (run_folder / "model.safetensors").read_bytes() in models
    elif len((run_folder / "metrics.jsonl").read_text().splitlines()) > 1:
        raise AssertionError(f"{name}: two epochs, but no model")
    run_child(recipe, run_folder, lambda: [])
    same = digest(run_folder) == expected
    leftovers = [path.name for path in run_folder.glob(".*.part")]
    print(f"{name}|{status}|{same and not finished and not leftovers}", flush=True)


if __name__ == "__main__":
    main()
