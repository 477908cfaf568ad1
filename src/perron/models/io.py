"""A model as a folder: config.json and model.safetensors, and nothing that is code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from perron.errors import DataError
from perron.files import make_folder, write_whole
from perron.migrations import migrate, stamp
from perron.models.config import ModelConfig, what_is_wrong

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def save_folder(folder: Path, config: ModelConfig, state: Mapping[str, Tensor]) -> None:
    """Write both files; the configuration last, as it makes the folder a model."""
    make_folder(folder)
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in state.items()
    }
    write_whole(folder / WEIGHTS, save(tensors, metadata={"format": "pt"}))
    content = stamp("model", {"model": config.model_dump(mode="json")})
    write_whole(folder / CONFIG, json.dumps(content, indent=2).encode())


def read_config(folder: Path) -> ModelConfig:
    """Read and check config.json."""
    content = _read_json(folder)
    try:
        return ModelConfig.model_validate(content.get("model"))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in ("model", *first["loc"]))
        raise DataError(f"{key}: {what_is_wrong(first)}", folder / CONFIG) from error


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not folder.is_dir():
        raise DataError("there is no such folder", folder)
    if not path.is_file():
        raise DataError(
            f"no {CONFIG} in it: no model was saved there. A run has one when it is "
            "over (perron train --resume --out goes on with it)",
            folder,
        )
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise DataError(f"is not valid JSON: {error}", path) from error
    content = migrate("model", content if isinstance(content, dict) else {}, path)
    if unknown := sorted(set(content) - {"model"}):
        raise DataError(f"{unknown[0]}: there is no such key", path)
    return content


def load_weights(model: nn.Module, folder: Path) -> None:
    """Load every weight that the model has, and no other."""
    path = folder / WEIGHTS
    try:
        tensors = load_file(path)
        model.load_state_dict(tensors)
    except FileNotFoundError as error:
        raise DataError("is missing: the model was not saved completely", path) from (
            error
        )
    except (SafetensorError, RuntimeError) as error:
        raise DataError(f"does not fit {CONFIG}: {error}", path) from error
