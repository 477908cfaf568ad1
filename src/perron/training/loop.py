"""The training loop, for one or several processes."""

import math
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import ProjectConfiguration
from torch import Tensor, nn
from torch.nn import functional as F

from perron.errors import PerronError, SettingsError
from perron.kernels import wait_for_compiled
from perron.models import Classifier
from perron.text.sampling import Batch, Examples, epoch_batches
from perron.training.callbacks import Callback
from perron.training.metrics import evaluate
from perron.training.recipe import TrainingSettings
from perron.training.state import (
    StopRequest,
    TrainingInterrupted,
    TrainState,
    WeightAverage,
    learning_rate,
)


class SingleDevice:
    """The part of accelerate's `Accelerator` that `Loop` uses, for one device.

    `Accelerator` keeps global state and joins distributed launches, which a loop that
    is embedded in another program must not do.
    """

    process_index, num_processes, is_main_process = 0, 1, True

    def __init__(self, device: torch.device | str) -> None:
        self.device = torch.device(device)

    def prepare(self, *objects: Any) -> Any:
        return objects

    def unwrap_model(self, model: Any) -> Any:
        return model

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def clip_grad_norm_(self, parameters: Iterable[Tensor], limit: float) -> None:
        nn.utils.clip_grad_norm_(parameters, limit)

    def reduce(self, tensor: Tensor, reduction: str = "sum") -> Tensor:
        return tensor


def make_accelerator(
    precision: str, log_with: Sequence[str] = (), folder: Path | None = None
) -> Accelerator:
    """Create the `Accelerator` for the devices and processes of this launch.

    Args:
        precision: Floating-point precision: auto, fp32 or bf16.
        log_with: Names of experiment trackers.
        folder: Log folder of the trackers.
    """
    cpu = not torch.accelerator.is_available()
    if precision == "bf16" and not has_bf16():
        raise SettingsError(
            "training.precision must be 'auto' or 'fp32' on this device, which does "
            "not support bfloat16, got 'bf16'."
        )
    if precision == "auto":  # bfloat16 is rarely faster on CPUs that support it
        precision = "bf16" if has_bf16() and not cpu else "fp32"
    # Its state is global to the process and would otherwise reject a second run with
    # another precision.
    AcceleratorState._reset_state()
    return Accelerator(
        cpu=cpu,
        mixed_precision="bf16" if precision == "bf16" else "no",
        log_with=list(log_with) or None,  # an empty list causes a warning
        project_config=ProjectConfiguration(logging_dir=folder and str(folder)),
    )


def has_bf16() -> bool:
    """Return whether this machine supports bfloat16 (on a CPU, in LSTM layers)."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    if torch.accelerator.is_available():
        return False
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


class DivergedError(PerronError, ValueError):
    """Raised when the loss is no longer finite."""


class Loop:
    """Trains a classifier until the schedule ends, and evaluates it after each epoch.

    The loop does not touch any files. Checkpoints, logs and the like are callbacks.

    Attributes:
        model: Classifier, not wrapped for distributed training.
        state: Progress of training.
        stop_signal: Number of the signal that stops training after this batch, or 0.
    """

    def __init__(
        self,
        model: Classifier,
        settings: TrainingSettings,
        train: Examples,
        dev: Examples | None = None,
        *,
        accelerator: Accelerator | SingleDevice | None = None,
        callbacks: Sequence[Callback] = (),
        stop: StopRequest | None = None,
    ) -> None:
        """Set up the optimizer, the schedule and the random state.

        Args:
            model: Classifier to train in place.
            settings: Schedule and optimizer.
            train: Training examples, weighted if they have weights.
            dev: Examples for early stopping and for selecting the best epoch. Without
                them, training runs for all epochs and the last one is kept.
            accelerator: Devices and processes. Defaults to the device of the model.
            callbacks: Callbacks, called in this order. Every process calls its own
                callbacks, so pass them only in the processes that need them.
            stop: Request that stops training after the current batch.
        """
        self.settings = settings
        self.train, self.dev = train, dev
        device = next(model.parameters()).device
        self.accelerator = accelerator or SingleDevice(device)
        self.callbacks = list(callbacks)
        threads = torch.get_num_threads()
        self.state = TrainState(settings.batch_size, num_threads=threads)
        self.stop_signal = 0
        self._stop = stop or StopRequest()
        self.model = model.to(self.accelerator.device)
        optimizer = make_optimizer(model, settings)
        self.average = None
        if settings.ema_decay is not None:
            self.average = WeightAverage(model, settings.ema_decay)
        self._wrapped, self.optimizer = self.accelerator.prepare(model, optimizer)
        # Each process draws its own dropout masks.
        torch.manual_seed(settings.seed + self.accelerator.process_index)

    def run(self) -> TrainState:
        """Train until the schedule ends.

        Raises:
            TrainingInterrupted: If a stop was requested.
            DivergedError: If the loss is not finite.
        """
        wait_for_compiled()  # so that results do not depend on timing
        try:
            self._call("on_train_begin")
            while not self.state.finished:
                self._train_epoch()
                self._end_epoch()
            if self._stop.signal_number:  # received after the last batch
                raise TrainingInterrupted(self._stop.signal_number)
        finally:
            self._call("on_train_end")
        return self.state

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)

    def _train_epoch(self) -> None:
        state, settings = self.state, self.settings
        batches = epoch_batches(
            self.train.sizes, state.batch_size, settings.seed, state.epoch
        )
        self._wrapped.train()
        self._call("on_epoch_begin", len(batches))
        for rows in batches[state.position :]:
            start = time.monotonic()
            rate = learning_rate(state, len(batches), settings)
            loss, correct, self.stop_signal = self._train_step(rows, rate)
            state.add_batch(loss, correct, len(rows), time.monotonic() - start)
            self._call("on_step")
            if self.stop_signal:
                raise TrainingInterrupted(self.stop_signal)

    def _train_step(self, rows: np.ndarray, rate: float) -> tuple[float, float, int]:
        """Take one step.

        The gradient is that of the mean loss over the batch, which is divided among the
        processes. Each process splits its share into micro-batches.

        Returns:
            Loss, number of correct predictions, and number of the stop signal or 0.
        """
        rank, world = self.accelerator.process_index, self.accelerator.num_processes
        local_rows = rows[rank::world]
        num_parts = self.settings.num_micro_batches
        parts = [p for p in np.array_split(local_rows, num_parts) if len(p)]
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * rate
        sums = torch.zeros(2, device=self.accelerator.device)
        for part in parts[:-1]:
            with self.accelerator.no_sync(self._wrapped):
                sums += self._add_gradient(part, 1.0, len(rows))
        if parts:
            sums += self._add_gradient(parts[-1], 1.0, len(rows))
        else:  # every process must join the all-reduce: use a text with weight zero
            sums += self._add_gradient(rows[:1], 0.0, len(rows))
        self.accelerator.clip_grad_norm_(
            self._wrapped.parameters(), self.settings.max_grad_norm
        )
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.state.step + 1)
        self.optimizer.zero_grad()
        loss, correct, stop = self._reduce(sums, self._stop.signal_number)
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} at step {self.state.step}. Lower "
                "learning_rate (training.learning_rate) or training.max_grad_norm."
            )
        return loss, correct, stop

    def _add_gradient(self, rows: np.ndarray, weight: float, batch_size: int) -> Tensor:
        """Accumulate the gradient of some rows.

        Gradients are averaged over processes, so each process scales its own sum up.
        ``batch_size`` is the number of texts in the batch over all processes.

        Returns:
            Loss and number of correct predictions.
        """
        batch = self.train.batch(rows).to(self.accelerator.device)
        with self.accelerator.autocast():
            logits = self._wrapped(**batch.inputs).logits.float()
        loss = weight * _summed_loss(logits, batch)
        self.accelerator.backward(loss * (self.accelerator.num_processes / batch_size))
        correct = logits.argmax(-1) == batch.labels
        if batch.weights is not None:
            correct = correct * batch.weights
        return torch.stack([loss.detach(), weight * correct.sum().to(loss)])

    def _reduce(self, sums: Tensor, stop: int) -> tuple[float, float, int]:
        """Sum over processes, so that a signal to one stops all at the same step."""
        if self.accelerator.num_processes > 1:
            sums = torch.cat([sums, sums.new_tensor([stop > 0])])
            sums = self.accelerator.reduce(sums, "sum")
            stop = stop or (signal.SIGTERM if sums[2] > 0 else 0)
        return sums[0].item(), sums[1].item(), int(stop)

    def _end_epoch(self) -> None:
        """Evaluate the averaged weights, if any, then restore the trained ones."""
        with nullcontext() if self.average is None else self.average.in_model():
            record = self._evaluate()
            self._call("on_evaluate", record)
        self._call("on_epoch_end", record)

    def _evaluate(self) -> dict[str, Any]:
        """Return the metrics.jsonl entry of the epoch, and advance to the next one."""
        state, settings = self.state, self.settings
        metrics = None
        if self.dev is not None:
            metrics = evaluate(
                self.model,
                self.dev,
                self.accelerator.device,
                self.accelerator.process_index,
                self.accelerator.num_processes,
            ).metrics
        dev = {f"dev_{name}": value for name, value in (metrics or {}).items()}
        last_step = replace(state, step=state.step - 1, position=state.position - 1)
        record: dict[str, Any] = {
            "epoch": state.epoch,
            "step": state.step,
            "batch_size": state.batch_size,
            "learning_rate": learning_rate(last_step, state.position, settings),
            "train_log_loss": state.loss / state.examples,
            "train_accuracy": state.correct / state.examples,
            **dev,
            "seconds": state.seconds,
            "texts_per_second": state.examples / state.seconds,
        }
        record["is_best"] = state.end_epoch(metrics, settings)
        return record


def _summed_loss(logits: Tensor, batch: Batch) -> Tensor:
    if batch.weights is None:
        return F.cross_entropy(logits, batch.labels, reduction="sum")
    losses = F.cross_entropy(logits, batch.labels, reduction="none")
    return (losses * batch.weights).sum()


def make_optimizer(
    model: nn.Module, settings: TrainingSettings
) -> torch.optim.Optimizer:
    """Create Adam with L2 regularization, except for embeddings and biases.

    The ``rate`` of a parameter group is a factor for its learning rate.
    """
    encoder_learning_rate = settings.encoder_learning_rate or settings.learning_rate
    encoder_rate = encoder_learning_rate / settings.learning_rate
    parameters_by_key: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        has_decay = parameter.ndim > 1 and not name.startswith("embedding.")
        is_encoder = name.startswith(("embedding.", "encoder."))
        key = (
            settings.weight_decay if has_decay else 0.0,
            encoder_rate if is_encoder else 1.0,
        )
        parameters_by_key.setdefault(key, []).append(parameter)
    groups = [
        {"params": parameters, "weight_decay": decay, "rate": rate}
        for (decay, rate), parameters in sorted(parameters_by_key.items(), reverse=True)
    ]
    fused = all(p.device.type in ("cpu", "cuda") for p in model.parameters())
    return torch.optim.Adam(groups, lr=settings.learning_rate, fused=fused)
