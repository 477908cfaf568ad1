"""A run that can be killed at any moment: what it needs to go on, in one file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from perron.errors import DataError
from perron.files import write_whole
from perron.migrations import migrate, stamp

CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A moment of a run.

    Attributes:
        standing: what `Standing` takes: schedule, batch size, data position.
        model: weights by name.
        optimiser: state of each parameter, as "number.name".
        chance: state of the random numbers of each process.
        metrics_bytes: length of metrics.jsonl.
        fingerprint: of data and vocabulary.
        average: averaged weights by name; none unless ``training.average`` is set.
    """

    standing: dict[str, Any]
    model: dict[str, Tensor]
    optimiser: dict[str, Tensor]
    chance: list[Tensor]
    metrics_bytes: int
    fingerprint: str
    average: dict[str, Tensor] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write it whole or not at all; the one before stays until then."""
        tensors = {f"model.{name}": value for name, value in self.model.items()}
        tensors |= {
            f"optimiser.{name}": value for name, value in self.optimiser.items()
        }
        tensors |= {f"average.{name}": value for name, value in self.average.items()}
        tensors |= {f"chance.{rank}": state for rank, state in enumerate(self.chance)}
        facts = {
            "standing": self.standing,
            "metrics_bytes": self.metrics_bytes,
            "fingerprint": self.fingerprint,
        }
        write_whole(folder / CHECKPOINT, _packed(tensors, stamp("checkpoint", facts)))

    @classmethod
    def read(cls, folder: Path) -> "Checkpoint":
        """Read what `write` wrote."""
        path = folder / CHECKPOINT
        parts: dict[str, dict[str, Tensor]] = {
            "model": {},
            "optimiser": {},
            "average": {},
            "chance": {},
        }
        try:
            with safe_open(path, "pt") as file:
                facts = json.loads(file.metadata()["perron"])
                for name in file.keys():  # noqa: SIM118, safe_open is no mapping
                    part, _, rest = name.partition(".")
                    parts[part][rest] = file.get_tensor(name)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"is not a checkpoint ({error})", path) from error
        states = parts["chance"]
        try:
            return cls(
                model=parts["model"],
                optimiser=parts["optimiser"],
                average=parts["average"],
                chance=[states[str(rank)] for rank in range(len(states))],
                **migrate("checkpoint", facts, path),
            )
        except TypeError as error:  # keys that are unknown or missing
            raise DataError(f"is not a checkpoint ({error})", path) from error


def _packed(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    held = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    return save(held, metadata={"perron": json.dumps(facts)})


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's state by name; its settings are in the recipe."""
    state = optimiser.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, values in state.items()
        for name, value in values.items()
    }


def restore_optimiser(
    optimiser: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Put back what `optimiser_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, _, name = key.partition(".")
        state.setdefault(int(number), {})[name] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state, "param_groups": groups})


def chance_state() -> Tensor:
    """Return the state of torch's random numbers, those of the GPU after the CPU's.

    Nothing else in a run draws from a shared source: the order of batches comes from
    the seed and the epoch.
    """
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)


def restore_chance(state: Tensor) -> None:
    """Put back what `chance_state` returned."""
    size = len(torch.get_rng_state())
    torch.set_rng_state(state[:size])
    if torch.cuda.is_available() and len(state) > size:
        torch.cuda.set_rng_state(state[size:])


def write_best(folder: Path, epoch: int, model: nn.Module) -> None:
    """Keep the weights of the best epoch so far, beside those of the last best.

    The last best goes when a checkpoint that knows the new one is there.
    """
    write_whole(best_path(folder, epoch), _packed(model.state_dict(), {"epoch": epoch}))


def best_path(folder: Path, epoch: int) -> Path:
    """Return where the weights of an epoch are."""
    return folder / f"best-{epoch}.safetensors"


def remove_other_bests(folder: Path, epoch: int | None) -> None:
    """Remove the weights of epochs that are no longer the best."""
    for path in folder.glob("best-*.safetensors"):
        if epoch is None or path != best_path(folder, epoch):
            path.unlink(missing_ok=True)
