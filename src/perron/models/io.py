"""The files of a model, in a folder or in memory; none of them contains code.

The same files are in the folder of a run, on the hub and in a pickled scikit-learn
estimator. A mapping of `Files` has their content, or the path to read it from.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save
from torch import Tensor, nn

from perron.errors import DataError
from perron.files import make_folder, write_whole
from perron.migrations import migrate, stamp
from perron.models.config import ModelConfig, problems

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
CARD = "README.md"
FILES = (TOKENIZER, CARD, WEIGHTS, CONFIG)  # in the order in which they are written

Files = Mapping[str, bytes | Path]  # file name -> content, or path of the file


def model_files(config: ModelConfig, state: Mapping[str, Tensor]) -> dict[str, bytes]:
    """Return configuration and weights as files."""
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in state.items()
    }
    content = stamp("model", {"model": config.model_dump(mode="json")})
    return {
        WEIGHTS: save(tensors, metadata={"format": "pt"}),
        CONFIG: json.dumps(content, indent=2).encode(),
    }


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files, each of them atomically.

    The configuration comes last: it makes the folder a model.
    """
    make_folder(folder)
    for name in sorted(files, key=FILES.index):
        write_whole(folder / name, files[name])


def folder_files(folder: Path) -> Files:
    """Return the files of the model in a folder; they are read when they are needed."""
    if not folder.is_dir():
        raise DataError("there is no such folder", folder)
    if not (folder / CONFIG).is_file():
        raise DataError(
            f"no {CONFIG} in it: no model was saved there. A training run has one "
            f"after its first epoch: perron train --resume --out {folder}",
            folder,
        )
    return {name: folder / name for name in FILES if (folder / name).is_file()}


def read_bytes(files: Files, name: str) -> bytes:
    """Return the content of a file."""
    content = files[name]
    return content.read_bytes() if isinstance(content, Path) else content


def where_is(files: Files, name: str) -> Path | str:
    """Return the path of a file for errors; without a folder, its name.

    A file that is missing belongs beside the configuration.
    """
    content = files.get(name, files.get(CONFIG))
    return content.with_name(name) if isinstance(content, Path) else name


def read_config(files: Files) -> ModelConfig:
    """Read and check the configuration of a model."""
    where = where_is(files, CONFIG)
    try:
        content = json.loads(read_bytes(files, CONFIG))
    except KeyError as error:
        raise DataError("is missing", where) from error
    except ValueError as error:
        raise DataError(f"is not valid JSON: {error}", where) from error
    table = migrate("model", content if isinstance(content, dict) else {}, where)
    if unknown := sorted(set(table) - {"model"}):
        raise DataError(f"{unknown[0]}: there is no such key", where)
    try:
        return ModelConfig.model_validate(table.get("model"))
    except ValidationError as error:
        raise DataError(problems(error, "model")[0], where) from error


def load_weights(model: nn.Module, files: Files) -> None:
    """Load every weight that the model has, and no other."""
    where, content = where_is(files, WEIGHTS), files.get(WEIGHTS)
    if content is None:
        raise DataError("is missing: the model was not saved completely", where)
    try:
        # A file is mapped into memory, so that the weights are copied once.
        tensors = load(content) if isinstance(content, bytes) else load_file(content)
        model.load_state_dict(tensors)
    except (SafetensorError, RuntimeError) as error:
        raise DataError(f"does not fit {CONFIG}: {error}", where) from error
