"""Exported models as folders, written and verified."""

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import torch
from onnxscript import ir
from torch import Tensor

from perron.errors import DataError
from perron.files import make_folder, replace_file
from perron.integrations.export.module import ExportModule, trace
from perron.integrations.export.operators import DEFAULT_OPSET, check_opset, to_onnx
from perron.models import Classifier
from perron.models.config import TOKENIZER
from perron.pipeline import Pipeline

TOLERANCE = 1e-5  # of a probability or a weight

Run = Callable[[dict[str, Tensor]], dict[str, np.ndarray]]


def onnx_runner(path: Path) -> Run:
    """Return what runs a file by onnxruntime, on the CPU."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
        arrays = {name: value.numpy() for name, value in inputs.items()}
        return dict(zip(names, session.run(names, arrays), strict=True))

    return run


def torch_runner(path: Path) -> Run:
    """Return what runs a file of `torch.export`."""
    program = torch.export.load(path).module()

    def run(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            found = program(**inputs)
        return {name: value.numpy() for name, value in found.items()}

    return run


def largest_difference(module: ExportModule, run: Run) -> float:
    """Return by how much a probability or weight differs at most; NaN if one is none.

    On texts of random words, always the same: with none, with one, and with as many as
    the model reads.
    """
    apart = []
    for inputs in _batches(module):
        with torch.inference_mode():
            wanted = module(**inputs)
        found = run(inputs)
        for name in wanted.keys() - {"logits", "vector"}:
            apart.append(np.abs(found[name] - wanted[name].numpy()).max())
    return float(np.max(apart))


def _batches(module: ExportModule) -> Iterator[dict[str, Tensor]]:
    config = module.model.config
    rng = torch.Generator().manual_seed(0)
    whole = {"words": config.max_words, "sentences": config.max_sentences}
    whole["pair_words"] = config.max_words
    for batch, share in ((1, 0.0), (1, 1.0), (8, 0.5)):
        sizes = {axis: max(1, int(share * size)) for axis, size in whole.items()}
        sizes["batch"] = batch
        inputs, words = {}, 0
        for name, axes in module.inputs.items():
            shape = [sizes[axis] for axis in axes]
            if name.endswith("ids"):
                words = shape[-1]
                inputs[name] = torch.randint(config.vocab_size, shape, generator=rng)
            else:
                inputs[name] = torch.randint(words + 1, shape, generator=rng)
                special = torch.tensor([words, 0, 1][:batch])
                inputs[name].flatten()[: len(special)] = special
        yield inputs


DESCRIPTION = "export.json"
ONNX = "model.onnx"
PROGRAM = "model.pt2"
_PACKAGES = ("perron", "torch", "onnx", "onnxscript")
_LARGEST_FILE = 2_000_000_000  # bytes that ONNX allows in one file, nearly


Save = Callable[[ExportModule, Path], dict[str, Any]]


class Exported(NamedTuple):
    """What was written, and by how much probabilities and weights differ at most."""

    files: list[Path]
    difference: float


def export_onnx(
    source: Pipeline | Classifier,
    folder: str | Path,
    *,
    opset: int = DEFAULT_OPSET,
    replace: bool = False,
) -> Exported:
    """Write model.onnx, tokenizer.json and export.json, for any batch and length.

    What was written is run by onnxruntime and compared with the model first: a file
    that differs by more than 1e-5 in a probability or a weight is not left behind.

    Args:
        source: a trained model; without its words, no tokenizer.json is written.
        folder: made if it is not there.
        opset: of ONNX's operators.
        replace: write into a folder that has something in it.
    """
    check_opset(opset)

    def save(module: ExportModule, path: Path) -> dict[str, Any]:
        model = to_onnx(module, opset)
        size = sum(value.const_value.nbytes for value in _weights(model))
        outside = f"{path.name}.data" if size > _LARGEST_FILE else None
        ir.save(model, path, external_data=outside)
        return {"opset": opset, "ir_version": model.ir_version}

    return _write(source, Path(folder), ONNX, save, onnx_runner, replace)


def export_torch(
    source: Pipeline | Classifier, folder: str | Path, *, replace: bool = False
) -> Exported:
    """Write model.pt2, a program of `torch.export`; see `export_onnx`.

    Who loads it imports `perron.models` first, which has the program's operators.
    """

    def save(module: ExportModule, path: Path) -> dict[str, Any]:
        torch.export.save(trace(module), path)
        return {}

    return _write(source, Path(folder), PROGRAM, save, torch_runner, replace)


def check_folder(folder: Path, replace: bool) -> None:
    """Refuse a folder that has something in it, unless that may be replaced."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is no folder", folder)
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        raise DataError(
            "has something in it: name another folder, or say that an export there "
            "may be replaced (replace=True, --force)",
            folder,
        )


def _write(
    source: Pipeline | Classifier,
    folder: Path,
    file: str,
    save: Save,
    runner: Callable[[Path], Run],
    replace: bool,
) -> Exported:
    """Write everything beside the folder, check it, then move it there."""
    check_folder(folder, replace)
    model = source.model if isinstance(source, Pipeline) else source
    module = ExportModule(model)
    make_folder(folder.parent)
    with TemporaryDirectory(".part", f".{folder.name}.", folder.parent) as name:
        part = Path(name)
        path = part / file
        facts = _saved(save, module, path)
        difference = largest_difference(module, runner(path))
        if not difference <= TOLERANCE:
            raise DataError(
                f"the exported model differs by {difference:.1e} from the model in a "
                "probability or a weight: nothing was written",
                folder,
            )
        if isinstance(source, Pipeline):
            words = source.processor.tokenizer.to_json()
            (part / TOKENIZER).write_text(words, encoding="utf-8")
        described = _description(module, path.name, facts, difference)
        (part / DESCRIPTION).write_text(json.dumps(described, indent=2))
        return Exported(_move(part, folder), difference)


def _saved(save: Save, module: ExportModule, path: Path) -> dict[str, Any]:
    try:
        return save(module, path)
    except OSError:
        raise
    except Exception as error:  # torch has many for what it cannot trace
        parts = module.model.config.settings
        raise DataError(
            f"a model of {parts.encoder.name} and {parts.aggregator.name} cannot be "
            f"exported: {(str(error).strip() or repr(error)).splitlines()[0]}"
        ) from error


def _move(part: Path, folder: Path) -> list[Path]:
    """Move the files, the description last, as it makes the folder an export."""
    make_folder(folder)
    for name in (DESCRIPTION, ONNX, f"{ONNX}.data", PROGRAM):
        (folder / name).unlink(missing_ok=True)
    made = sorted(part.iterdir(), key=lambda path: (path.name == DESCRIPTION, path))
    for path in made:
        replace_file(path, folder / path.name)
    return [folder / path.name for path in made]


def _description(
    module: ExportModule, name: str, facts: dict[str, Any], difference: float
) -> dict[str, Any]:
    config = module.model.config
    settings = config.settings
    return {
        "format": "perron-export-1",
        "file": name,
        "kind": settings.kind,
        "labels": config.labels,
        "max_words": config.max_words,
        "max_sentences": config.max_sentences,
        "inputs": _told("int64", module.inputs),
        "outputs": _told("float32", module.outputs),
        "encoder": settings.encoder.name,
        "aggregator": settings.aggregator.name,
        "largest_difference": difference,
        **facts,
        "versions": {name: version(name) for name in _PACKAGES},
    }


def _told(dtype: str, axes: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: f"{dtype}[{', '.join(of)}]" for name, of in axes.items()}


def _weights(model: ir.Model) -> Sequence[Any]:
    return [
        value
        for value in model.graph.initializers.values()
        if value.const_value is not None
    ]
