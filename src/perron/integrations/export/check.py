"""Does an exported file compute what the model computes?"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from perron.integrations.export.module import ExportModule

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
    chance = torch.Generator().manual_seed(0)
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
                inputs[name] = torch.randint(config.vocabulary, shape, generator=chance)
            else:
                inputs[name] = torch.randint(words + 1, shape, generator=chance)
                special = torch.tensor([words, 0, 1][:batch])
                inputs[name].flatten()[: len(special)] = special
        yield inputs
