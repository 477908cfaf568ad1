"""Helpers for tests of exported models."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from perron.integrations.export.module import ExportModule
from perron.integrations.export.operators import to_onnx
from perron.integrations.export.write import max_abs_difference, onnx_runner
from perron_tests.models import small_model


def padded(lists: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return padded ids and lengths. The padding has the id of a word."""
    lengths = np.array([len(ids) for ids in lists], np.int64)
    ids = np.full((len(lists), max(1, lengths.max())), 3, np.int64)
    for row, words in zip(ids, lists, strict=True):
        row[: len(words)] = words
    return ids, lengths


def run_folder(folder: Path, texts: list[str], pairs: list[str] | None = None):
    """Return the outputs by name, using only `tokenizers` and `onnxruntime`."""
    description = json.loads((folder / "export.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(folder / description["file"])
    inputs = {}
    for prefix, batch in (("", texts), ("pair_", pairs)):
        if batch is not None:
            encoded = tokenizer.encode_batch(batch, add_special_tokens=False)
            ids = [encoding.ids[: description["max_words"]] for encoding in encoded]
            inputs[f"{prefix}ids"], inputs[f"{prefix}lengths"] = padded(ids)
    names = list(description["outputs"])
    return dict(zip(names, session.run(names, inputs), strict=True))


def onnx_difference(folder: Path, *components: str) -> float:
    """Return the largest difference between a small model and its ONNX export."""
    from onnxscript import ir

    module = ExportModule(small_model(*components))
    ir.save(to_onnx(module), folder / "model.onnx")
    return max_abs_difference(module, onnx_runner(folder / "model.onnx"))
