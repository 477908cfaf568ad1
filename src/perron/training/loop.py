"""The whole training loop."""

import math
import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.nn import functional as F

from perron.errors import PerronError
from perron.text.batches import epoch_batches
from perron.training.callbacks import MetricsFile, Watcher
from perron.training.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    chance_state,
    optimiser_tensors,
    remove_other_bests,
    restore_chance,
    restore_optimiser,
    write_best,
)
from perron.training.evaluate import evaluate
from perron.training.prepare import Prepared
from perron.training.recipe import TrainingSettings
from perron.training.state import Standing, WeightAverage, learning_rate
from perron.training.stopping import Stopped, StopRequest, held_back_signals


class Loop:
    """Trains a prepared model in a folder, from its beginning or from a checkpoint."""

    def __init__(
        self,
        prepared: Prepared,
        folder: Path,
        accelerator: Accelerator,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self.prepared = prepared
        self.settings = prepared.recipe.training
        self.folder = folder
        self.accelerator = accelerator
        self.standing = Standing(self.settings.batch_size)
        optimiser = make_optimiser(prepared.model.to(accelerator.device), self.settings)
        self.average = None
        if self.settings.average is not None:
            self.average = WeightAverage(prepared.model, self.settings.average)
        saved = self._restore(optimiser)
        self.model, self.optimiser = accelerator.prepare(prepared.model, optimiser)
        rank = accelerator.process_index
        if saved is not None:
            restore_chance(saved.chance[rank])
        else:  # every process has a dropout of its own
            torch.manual_seed(self.settings.seed + rank)
        self.metrics = None
        self.watchers = list(watchers) if accelerator.is_main_process else []
        if accelerator.is_main_process:
            size = saved.metrics_bytes if saved else 0
            self.metrics = MetricsFile(folder, size)
            self.watchers.insert(0, self.metrics)

    def run(self) -> Standing:
        """Train until it is over; raise `Stopped` when a signal asks for it."""
        try:
            with held_back_signals() as request:
                while not self.standing.finished:
                    self._train_epoch(request)
                    self._end_epoch()
            if request.number:  # it came after the last batch
                raise Stopped(request.number)
        finally:
            for watcher in self.watchers:
                watcher.end()
        return self.standing

    def _train_epoch(self, request: StopRequest) -> None:
        standing, settings = self.standing, self.settings
        batches = epoch_batches(
            self.prepared.train.sizes,
            standing.batch_size,
            settings.seed,
            standing.epoch,
        )
        self.model.train()
        for watcher in self.watchers:
            watcher.begin_epoch(standing, len(batches), len(self.prepared.train))
        saved = time.monotonic()
        for rows in batches[standing.position :]:
            began = time.monotonic()
            loss, right, stop = self._learn(rows, request)
            standing.count(loss, right, len(rows), time.monotonic() - began)
            for watcher in self.watchers:
                watcher.step(standing, len(rows))
            due = time.monotonic() - saved > settings.checkpoint_seconds
            if stop or self._agree(due):
                self._save()
                saved = time.monotonic()
            if stop:
                raise Stopped(stop)

    def _learn(self, rows: np.ndarray, request: StopRequest) -> tuple[float, int, int]:
        """Take one step; return the summed loss, right answers, and a signal or 0.

        The gradient is that of the mean loss over the whole batch. Each process reads
        and learns from a share of it, all at once or in parts.
        """
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        share = rows[rank::world]
        parts = [p for p in np.array_split(share, self.settings.accumulate) if len(p)]
        rate = learning_rate(self.standing.step, self.settings)
        for group in self.optimiser.param_groups:
            group["lr"] = group["rate"] * rate
        told = torch.zeros(2, device=self.accelerator.device)
        for part in parts[:-1]:
            with self.accelerator.no_sync(self.model):
                told += self._add_gradient(part, 1.0, len(rows))
        if parts:
            told += self._add_gradient(parts[-1], 1.0, len(rows))
        else:  # a process without texts does one for show
            told += self._add_gradient(rows[:1], 0.0, len(rows))
        self.accelerator.clip_grad_norm_(self.model.parameters(), self.settings.clip)
        self.optimiser.step()
        if self.average is not None:
            self.average.update(self.standing.step + 1)
        self.optimiser.zero_grad()
        total, good, stop = self._total(told, request.number)
        if not math.isfinite(total):
            raise PerronError(
                f"the loss became {total} at step {self.standing.step}: try a lower "
                "training.learning_rate or training.clip"
            )
        return total, good, stop

    def _add_gradient(self, rows: np.ndarray, weight: float, whole: int) -> Tensor:
        """Add the gradient of some rows; return their summed loss and right answers.

        Gradients are averaged over processes, so each scales its own sum up. ``whole``
        is the number of texts of the batch in all processes.
        """
        batch = self.prepared.train.batch(rows).to(self.accelerator.device)
        with self.accelerator.autocast():
            logits = self.model(**batch.inputs).logits.float()
        loss = weight * F.cross_entropy(logits, batch.labels, reduction="sum")
        self.accelerator.backward(loss * (self.accelerator.num_processes / whole))
        right = weight * (logits.argmax(-1) == batch.labels).sum()
        return torch.stack([loss.detach(), right.to(loss)])

    def _total(self, told: torch.Tensor, stop: int) -> tuple[float, int, int]:
        """Sum over processes; any process's signal stops all, at the same step."""
        if self.accelerator.num_processes > 1:
            told = torch.cat([told, told.new_tensor([stop > 0])])
            told = self.accelerator.reduce(told, "sum")
            stop = stop or (signal.SIGTERM if told[2] > 0 else 0)
        return told[0].item(), round(told[1].item()), int(stop)

    def _agree(self, due: bool) -> bool:
        """Let the main process decide."""
        if self.accelerator.num_processes == 1:
            return due
        answer = torch.tensor([float(due and self.accelerator.is_main_process)])
        return bool(self.accelerator.reduce(answer.to(self.accelerator.device)) > 0)

    def _end_epoch(self) -> None:
        """Evaluate and keep the best; training goes on from what was not averaged."""
        with nullcontext() if self.average is None else self.average.in_model():
            record = self._evaluate()
        for watcher in self.watchers:
            watcher.end_epoch(record)
        self._save()

    def _evaluate(self) -> dict[str, Any]:
        """Return how the epoch went; keep the model's weights if they are the best."""
        standing, settings = self.standing, self.settings
        model = self.accelerator.unwrap_model(self.model)
        result = evaluate(
            model,
            self.prepared.dev,
            self.accelerator.device,
            self.accelerator.process_index,
            self.accelerator.num_processes,
        )
        record: dict[str, Any] = {
            "epoch": standing.epoch,
            "step": standing.step,
            "batch_size": standing.batch_size,
            "learning_rate": learning_rate(max(0, standing.step - 1), settings),
            "train_log_loss": standing.loss / standing.seen,
            "train_accuracy": standing.right / standing.seen,
            **{f"dev_{name}": value for name, value in result.metrics.items()},
            "seconds": standing.seconds,
            "texts_per_second": standing.seen / standing.seconds,
        }
        record["is_best"] = standing.end_epoch(
            result.metrics["accuracy"], result.metrics["log_loss"], settings
        )
        if record["is_best"] and self.accelerator.is_main_process:
            write_best(self.folder, record["epoch"], model)
        return record

    def _save(self) -> None:
        """Write a checkpoint; only then drop what the one before needed."""
        chances = [chance_state()]
        if self.accelerator.num_processes > 1:
            chances = gather_object(chances)
        if self.metrics is not None:
            Checkpoint(
                self.standing.to_dict(),
                self.accelerator.unwrap_model(self.model).state_dict(),
                optimiser_tensors(self.optimiser),
                chances,
                self.metrics.size,
                self.prepared.fingerprint,
                {} if self.average is None else self.average.tensors,
            ).write(self.folder)
            remove_other_bests(self.folder, self.standing.best_epoch)
        self.accelerator.wait_for_everyone()

    def _restore(self, optimiser: torch.optim.Optimizer) -> Checkpoint | None:
        """Go back to the last checkpoint, if there is one."""
        world = self.accelerator.num_processes
        if not (self.folder / CHECKPOINT).exists():
            return None
        saved = Checkpoint.read(self.folder)
        is_main = self.accelerator.is_main_process  # whoever checks reads all texts
        if is_main and saved.fingerprint != self.prepared.fingerprint:
            raise PerronError(
                f"{self.folder}: the data or the word vectors have changed since this "
                "run began; it cannot go on. Train anew in another folder (--out)"
            )
        if len(saved.chance) != world:
            raise PerronError(
                f"{self.folder}: the run began with {len(saved.chance)} process(es) "
                f"and can only go on with as many, but there are {world}"
            )
        self.standing = Standing(**saved.standing)
        self.prepared.model.load_state_dict(saved.model)
        restore_optimiser(optimiser, saved.optimiser)
        if self.average is not None:
            self.average.restore(saved.average)
        return saved


def make_optimiser(
    model: nn.Module, settings: TrainingSettings
) -> torch.optim.Optimizer:
    """Adam, with L2 on all weights but embeddings and biases.

    A group's ``rate`` is what its learning rate is multiplied with.
    """
    own = settings.encoder_learning_rate or settings.learning_rate
    encoder_rate = own / settings.learning_rate
    sorted_out: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        is_held = parameter.ndim > 1 and not name.startswith("embedding.")
        is_encoder = name.startswith(("embedding.", "encoder."))
        key = settings.l2 if is_held else 0.0, encoder_rate if is_encoder else 1.0
        sorted_out.setdefault(key, []).append(parameter)
    groups = [
        {"params": parameters, "weight_decay": decay, "rate": rate}
        for (decay, rate), parameters in sorted(sorted_out.items(), reverse=True)
    ]
    fused = all(p.device.type in ("cpu", "cuda") for p in model.parameters())
    return torch.optim.Adam(groups, lr=settings.learning_rate, fused=fused)
