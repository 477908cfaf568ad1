"""What the tests of exported models share: files in folders, and how they are run."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from perron.integrations.export.module import ExportModule
from perron.integrations.export.operators import to_onnx
from perron.integrations.export.write import largest_difference, onnx_runner
from perron_tests.models import small_model


def padded(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids, with a word's id under the padding, and lengths."""
    lengths = np.array([len(ids) for ids in lists], np.int64)
    ids = np.full((len(lists), max(1, lengths.max())), 3, np.int64)
    for row, words in zip(ids, lists, strict=True):
        row[: len(words)] = words
    return ids, lengths


def run_folder(folder: Path, texts: list[str], pairs: list[str] | None = None):
    """Return the outputs by name, with `tokenizers` and `onnxruntime` alone."""
    told = json.loads((folder / "export.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(folder / told["file"])
    inputs = {}
    for side, given in (("", texts), ("pair_", pairs)):
        if given is not None:
            encoded = tokenizer.encode_batch(given, add_special_tokens=False)
            ids = [encoding.ids[: told["max_words"]] for encoding in encoded]
            inputs[f"{side}ids"], inputs[f"{side}lengths"] = padded(ids)
    names = list(told["outputs"])
    return dict(zip(names, session.run(names, inputs), strict=True))


def onnx_difference(folder: Path, *parts: str) -> float:
    """Return how far a small model's probabilities are from those of its ONNX."""
    from onnxscript import ir

    module = ExportModule(small_model(*parts))
    ir.save(to_onnx(module), folder / "model.onnx")
    return largest_difference(module, onnx_runner(folder / "model.onnx"))
