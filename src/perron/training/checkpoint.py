"""Checkpoints: everything needed to resume a run, and the best model so far."""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from perron.errors import DataError, PerronError
from perron.files import atomic_write, digest
from perron.migrations import migrate, stamp, tensor_name
from perron.models.config import CARD, CONFIG, WEIGHTS, model_files
from perron.training.callbacks import Callback, MetricsFile
from perron.training.loop import Loop
from perron.training.state import TrainState
from perron.training.state_cache import tensor_bytes

CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A snapshot of a run.

    Attributes:
        state: Arguments of `TrainState`: schedule, batch size, position in the data.
        model: Weights by name, without frozen ones, which never change.
        optimizer: State of the optimizer, with keys such as "0.exp_avg".
        rng: State of the random number generators, per process.
        metrics_bytes: Size of metrics.jsonl in bytes.
        fingerprint: Hash of the data and the vocabulary.
        frozen: Hash of the frozen weights. Empty if there are none, and in checkpoints
            of earlier versions, which include the weights instead.
        average: Averaged weights by name; empty without ``training.ema_decay``.
    """

    state: dict[str, Any]
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    rng: list[Tensor]
    metrics_bytes: int
    fingerprint: str
    frozen: str = ""
    average: dict[str, Tensor] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the checkpoint, replacing the previous one atomically."""
        parts = {
            "model": self.model,
            "optimizer": self.optimizer,
            "average": self.average,
            "rng": {str(rank): state for rank, state in enumerate(self.rng)},
        }
        tensors = {
            f"{part}.{name}": value.detach().cpu().contiguous()
            for part, values in parts.items()
            for name, value in values.items()
        }
        metadata = {
            "state": self.state,
            "metrics_bytes": self.metrics_bytes,
            "fingerprint": self.fingerprint,
            "frozen": self.frozen,
        }
        header = {"perron": json.dumps(stamp("checkpoint", metadata))}
        atomic_write(folder / CHECKPOINT, save(tensors, metadata=header))

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint":
        """Read the checkpoint in a folder."""
        path = folder / CHECKPOINT
        parts: dict[str, dict[str, Tensor]] = {
            "model": {},
            "optimizer": {},
            "average": {},
            "rng": {},
        }
        try:
            with safe_open(path, "pt") as file:
                metadata = json.loads(file.metadata()["perron"])
                for name in file.keys():  # noqa: SIM118, safe_open is not a mapping
                    part, _, rest = tensor_name(name).partition(".")
                    parts[part][rest] = file.get_tensor(name)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"is not a valid checkpoint ({error})", path) from error
        states = parts["rng"]
        try:
            return cls(
                model=parts["model"],
                optimizer=parts["optimizer"],
                average=parts["average"],
                rng=[states[str(rank)] for rank in range(len(states))],
                **migrate("checkpoint", metadata, path),
            )
        except TypeError as error:  # unknown or missing keys
            raise DataError(f"is not a valid checkpoint ({error})", path) from error


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the state of an optimizer by name, without its hyperparameters."""
    state = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def _restore_optimizer(
    optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _rng_state() -> Tensor:
    """Return the state of torch's CPU generator, followed by that of the GPU.

    No other shared generator is used in a run. The order of batches depends only on the
    seed and the epoch.
    """
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)


def _restore_rng(state: Tensor) -> None:
    size = len(torch.get_rng_state())
    torch.set_rng_state(state[:size])
    if torch.cuda.is_available() and len(state) > size:
        torch.cuda.set_rng_state(state[size:])


class BestModel(Callback):
    """Keeps the model of the best epoch so far in the folder of a run.

    After each new best epoch, `on_evaluate` writes the weights to best-N.safetensors.
    Once a checkpoint includes the epoch, `publish` renames the file to
    model.safetensors. From the first epoch on, the folder holds a complete model: that
    of the best epoch in the checkpoint or, for a moment, in the previous checkpoint.
    """

    def __init__(
        self, folder: Path, files: Mapping[str, bytes], card: Callable[[int], str]
    ) -> None:
        """Initialize the callback.

        Args:
            folder: Folder of the run.
            files: Files of the model that do not change: tokenizer and configuration.
            card: Function that returns the model card for an epoch.
        """
        self._folder, self._files, self._card = folder, files, card
        self._has_written_files = False

    def on_evaluate(self, loop: Loop, record: dict[str, Any]) -> None:
        if record["is_best"]:
            weights = model_files(loop.model.config, loop.model.state_dict())[WEIGHTS]
            atomic_write(_staged_path(self._folder, record["epoch"]), weights)

    def publish(self, epoch: int) -> None:
        """Make the staged model of an epoch the model in the folder.

        Idempotent, so that a run killed in the middle can be repaired.
        """
        staged, config = _staged_path(self._folder, epoch), self._folder / CONFIG
        if staged.exists():
            self._write_files()
            atomic_write(self._folder / CARD, self._card(epoch).encode())
            staged.replace(self._folder / WEIGHTS)
        if not config.exists():
            atomic_write(config, self._files[CONFIG])
        remove_staged(self._folder)

    def _write_files(self) -> None:
        """Replace the tokenizer and configuration if they belong to another model."""
        if self._has_written_files:
            return
        paths = {self._folder / name: content for name, content in self._files.items()}
        if any(not p.exists() or p.read_bytes() != c for p, c in paths.items()):
            config = self._folder / CONFIG
            config.unlink(missing_ok=True)  # written last, when the model is complete
            for path, content in paths.items():
                if path != config:
                    atomic_write(path, content)
        self._has_written_files = True


def _staged_path(folder: Path, epoch: int) -> Path:
    return folder / f"best-{epoch}.safetensors"


def remove_staged(folder: Path) -> None:
    """Remove staged weights that were not published."""
    for path in folder.glob("best-*.safetensors"):
        path.unlink(missing_ok=True)


class Checkpointing(Callback):
    """Writes a checkpoint every few minutes, after each epoch and on interruption.

    Every process needs this callback, because saving is a collective operation. Only
    the main process writes.
    """

    def __init__(
        self,
        folder: Path,
        accelerator: Accelerator,
        fingerprint: Callable[[], str],
        metrics: MetricsFile,
        best: BestModel,
    ) -> None:
        """Initialize the callback. Call `restore` to resume from a checkpoint.

        Args:
            folder: Folder of the run.
            accelerator: Accelerator of the run.
            fingerprint: Function that returns the hash of data and vocabulary. Called
                in the main process only, because it reads all texts.
            metrics: Metrics file, whose size is stored in the checkpoint.
            best: Best model, published after each checkpoint.
        """
        self._folder, self._accelerator = folder, accelerator
        self._fingerprint = fingerprint
        self._metrics, self._best = metrics, best
        self._last_save = 0.0
        self._frozen: str | None = None

    def restore(self, loop: Loop) -> None:
        """Restore the loop from the checkpoint in the folder, if there is one."""
        if not (self._folder / CHECKPOINT).exists():
            return
        saved = Checkpoint.read(self._folder)
        world_size = loop.accelerator.num_processes
        is_main = self._accelerator.is_main_process
        if is_main:
            check_fingerprint(saved, self._fingerprint(), self._folder, loop.model)
        if len(saved.rng) != world_size:
            raise PerronError(
                f"{self._folder}: the number of processes must be {len(saved.rng)}, as "
                f"when the run started, got {world_size}."
            )
        loop.state = TrainState(**saved.state)
        # The same number of threads rounds in the same way.
        if loop.state.num_threads is not None and "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(loop.state.num_threads)
        frozen = _frozen_weights(loop.model) if saved.frozen else {}
        loop.model.load_state_dict({**frozen, **saved.model})
        _restore_optimizer(loop.optimizer, saved.optimizer)
        if loop.average is not None:
            loop.average.restore(saved.average)
        _restore_rng(saved.rng[loop.accelerator.process_index])
        if is_main:
            self._metrics.open(saved.metrics_bytes)
            if loop.state.best_epoch is not None:
                self._best.publish(loop.state.best_epoch)

    def on_epoch_begin(self, loop: Loop, steps: int) -> None:
        self._last_save = time.monotonic()

    def on_step(self, loop: Loop) -> None:
        is_due = time.monotonic() - self._last_save > loop.settings.checkpoint_seconds
        if loop.stop_signal or self._broadcast(is_due):
            self._save(loop)
            self._last_save = time.monotonic()

    def on_epoch_end(self, loop: Loop, record: dict[str, Any]) -> None:
        self._save(loop)

    def _broadcast(self, is_due: bool) -> bool:
        """Return the main process's value in every process."""
        accelerator = self._accelerator
        if accelerator.num_processes == 1:
            return is_due
        flag = torch.tensor([float(is_due and accelerator.is_main_process)])
        return bool(accelerator.reduce(flag.to(accelerator.device)) > 0)

    def _save(self, loop: Loop) -> None:
        """Write a checkpoint, then publish the best model that it includes."""
        rng = [_rng_state()]
        if self._accelerator.num_processes > 1:
            rng = gather_object(rng)
        if self._accelerator.is_main_process:
            if self._frozen is None:  # slow to compute, and never changes
                self._frozen = _frozen_digest(loop.model)
            frozen = _frozen_weights(loop.model)
            weights = loop.model.state_dict().items()
            Checkpoint(
                state=loop.state.to_dict(),
                model={name: value for name, value in weights if name not in frozen},
                optimizer=_optimizer_tensors(loop.optimizer),
                rng=rng,
                metrics_bytes=self._metrics.size,
                fingerprint=self._fingerprint(),
                frozen=self._frozen,
                average={} if loop.average is None else loop.average.tensors,
            ).write(self._folder)
            if loop.state.best_epoch is not None:
                self._best.publish(loop.state.best_epoch)
        self._accelerator.wait_for_everyone()


def _frozen_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the frozen weights by name. They are the same in every checkpoint."""
    return {
        name: weight
        for name, weight in model.named_parameters()
        if not weight.requires_grad
    }


def _frozen_digest(model: nn.Module) -> str:
    """Return the hash of the frozen weights, or an empty string if there are none."""
    frozen = sorted(_frozen_weights(model).items())
    parts = ((name.encode(), tensor_bytes(weight)) for name, weight in frozen)
    return digest(chain.from_iterable(parts)) if frozen else ""


def check_fingerprint(
    saved: Checkpoint, fingerprint: str, folder: Path, model: nn.Module
) -> None:
    """Raise an error if a checkpoint has different data or frozen weights."""
    is_same = saved.fingerprint == fingerprint
    if not is_same or (saved.frozen and saved.frozen != _frozen_digest(model)):
        what = "pretrained encoder" if is_same else "data"
        raise PerronError(
            f"{folder}: the {what} or the word vectors have changed since this run "
            "started, so it cannot be resumed. Choose another folder with --out."
        )
