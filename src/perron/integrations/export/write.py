"""Export folders: writing and verification."""

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

TOLERANCE = 1e-5  # for probabilities and weights

Run = Callable[[dict[str, Tensor]], dict[str, np.ndarray]]


def onnx_runner(path: Path) -> Run:
    """Return a function that runs an ONNX file with onnxruntime on the CPU."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
        arrays = {name: value.numpy() for name, value in inputs.items()}
        return dict(zip(names, session.run(names, arrays), strict=True))

    return run


def torch_runner(path: Path) -> Run:
    """Return a function that runs an exported program of `torch.export`."""
    program = torch.export.load(path).module()

    def run(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            outputs = program(**inputs)
        return {name: value.numpy() for name, value in outputs.items()}

    return run


def max_abs_difference(module: ExportModule, run: Run) -> float:
    """Return the largest absolute difference in any probability or weight.

    The inputs are texts of random words: empty, of one word, and of the maximum length.
    They are the same in every call. The result is NaN if any output is NaN.
    """
    differences = []
    for inputs in _batches(module):
        with torch.inference_mode():
            expected = module(**inputs)
        actual = run(inputs)
        for name in expected.keys() - {"logits", "vector"}:
            difference = np.abs(actual[name] - expected[name].numpy())
            differences.append(difference.max())
    return float(np.max(differences))


def _batches(module: ExportModule) -> Iterator[dict[str, Tensor]]:
    config = module.model.config
    rng = torch.Generator().manual_seed(0)
    limits = {"words": config.max_words, "sentences": config.max_sentences}
    limits["pair_words"] = config.max_words
    for batch, fraction in ((1, 0.0), (1, 1.0), (8, 0.5)):
        sizes = {axis: max(1, int(fraction * n)) for axis, n in limits.items()}
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
_MAX_FILE_SIZE = 2_000_000_000  # bytes; ONNX allows slightly more in one file


Save = Callable[[ExportModule, Path], dict[str, Any]]


class ExportResult(NamedTuple):
    """Result of an export.

    Attributes:
        files: Files that were written.
        max_abs_difference: Largest difference in any probability or weight between the
            exported model and the original.
    """

    files: list[Path]
    max_abs_difference: float


def export_onnx(
    source: Pipeline | Classifier,
    folder: str | Path,
    *,
    opset: int = DEFAULT_OPSET,
    replace: bool = False,
) -> ExportResult:
    """Write model.onnx, tokenizer.json and export.json.

    The batch size and the text length are dynamic. The exported model is run with
    onnxruntime and compared with the original. If a probability or weight differs by
    more than 1e-5, nothing is written.

    Args:
        source: Trained model. tokenizer.json is written only for a `Pipeline`.
        folder: Output folder. It is created if it does not exist.
        opset: Version of the ONNX operator set.
        replace: Whether to write into a folder that is not empty, replacing an
            earlier export.

    Raises:
        DataError: If the model cannot be exported, the exported model differs, or the
            folder is not empty.
    """
    check_opset(opset)

    def save(module: ExportModule, path: Path) -> dict[str, Any]:
        model = to_onnx(module, opset)
        size = sum(value.const_value.nbytes for value in _weights(model))
        external = f"{path.name}.data" if size > _MAX_FILE_SIZE else None
        ir.save(model, path, external_data=external)
        return {"opset": opset, "ir_version": model.ir_version}

    return _write(source, Path(folder), ONNX, save, onnx_runner, replace)


def export_torch(
    source: Pipeline | Classifier, folder: str | Path, *, replace: bool = False
) -> ExportResult:
    """Write model.pt2, an exported program of `torch.export`.

    Import `perron.models` before you load it, to register the custom operators. The
    arguments and the verification are the same as for `export_onnx`.
    """

    def save(module: ExportModule, path: Path) -> dict[str, Any]:
        torch.export.save(trace(module), path)
        return {}

    return _write(source, Path(folder), PROGRAM, save, torch_runner, replace)


def check_folder(folder: Path, replace: bool) -> None:
    """Raise a DataError if the folder is not empty and `replace` is False."""
    if folder.exists() and not folder.is_dir():
        raise DataError("is not a folder.", folder)
    if folder.is_dir() and any(folder.iterdir()) and not replace:
        raise DataError(
            "is not empty. Use another folder, or replace the export in it "
            "(replace=True, --force).",
            folder,
        )


def _write(
    source: Pipeline | Classifier,
    folder: Path,
    file: str,
    save: Save,
    runner: Callable[[Path], Run],
    replace: bool,
) -> ExportResult:
    """Write everything to a temporary folder, verify it, then move it."""
    check_folder(folder, replace)
    model = source.model if isinstance(source, Pipeline) else source
    module = ExportModule(model)
    make_folder(folder.parent)
    with TemporaryDirectory(".part", f".{folder.name}.", folder.parent) as name:
        temporary = Path(name)
        path = temporary / file
        details = _save(save, module, path)
        difference = max_abs_difference(module, runner(path))
        if not difference <= TOLERANCE:
            raise DataError(
                f"a probability or weight of the exported model differs by "
                f"{difference:.1e} from the original. Nothing was written.",
                folder,
            )
        if isinstance(source, Pipeline):
            tokenizer = source.processor.tokenizer.to_json()
            (temporary / TOKENIZER).write_text(tokenizer, encoding="utf-8")
        description = _describe(module, path.name, details, difference)
        (temporary / DESCRIPTION).write_text(json.dumps(description, indent=2))
        return ExportResult(_move(temporary, folder), difference)


def _save(save: Save, module: ExportModule, path: Path) -> dict[str, Any]:
    try:
        return save(module, path)
    except OSError:
        raise
    except Exception as error:  # torch raises many types for untraceable code
        settings = module.model.config.settings
        raise DataError(
            f"a model with encoder {settings.encoder.name} and aggregator "
            f"{settings.aggregator.name} cannot be exported: "
            f"{(str(error).strip() or repr(error)).splitlines()[0]}"
        ) from error


def _move(source: Path, folder: Path) -> list[Path]:
    """Move the files. The description is last, because it marks a complete export."""
    make_folder(folder)
    for name in (DESCRIPTION, ONNX, f"{ONNX}.data", PROGRAM):
        (folder / name).unlink(missing_ok=True)
    paths = sorted(source.iterdir(), key=lambda path: (path.name == DESCRIPTION, path))
    for path in paths:
        replace_file(path, folder / path.name)
    return [folder / path.name for path in paths]


def _describe(
    module: ExportModule, name: str, details: dict[str, Any], difference: float
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
        "inputs": _tensor_types("int64", module.inputs),
        "outputs": _tensor_types("float32", module.outputs),
        "encoder": settings.encoder.name,
        "aggregator": settings.aggregator.name,
        "largest_difference": difference,
        **details,
        "versions": {name: version(name) for name in _PACKAGES},
    }


def _tensor_types(dtype: str, tensors: dict[str, tuple[str, ...]]) -> dict[str, str]:
    return {name: f"{dtype}[{', '.join(axes)}]" for name, axes in tensors.items()}


def _weights(model: ir.Model) -> Sequence[Any]:
    return [
        value
        for value in model.graph.initializers.values()
        if value.const_value is not None
    ]
