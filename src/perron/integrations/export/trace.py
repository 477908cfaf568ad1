"""The program of a classifier, for any batch and any length."""

import torch

from perron.integrations.export.module import ExportModule


def trace(module: ExportModule) -> torch.export.ExportedProgram:
    """Return the module as a program of `torch.export`, with Perron's operators."""
    # Sizes 0 and 1 would be taken for constants.
    sizes = {"batch": 2, "words": 3, "pair_words": 4, "sentences": 5}
    config = module.model.config
    # A pretrained encoder has so many places and no more.
    most = {} if config.pretrained is None else {"words": config.max_words}
    most |= {"pair_words": most["words"]} if most else {}
    dims = {axis: torch.export.Dim(axis, min=1, max=most.get(axis)) for axis in sizes}
    example, dynamic = {}, {}
    for name, axes in module.inputs.items():
        example[name] = torch.ones([sizes[axis] for axis in axes], dtype=torch.long)
        dynamic[name] = {place: dims[axis] for place, axis in enumerate(axes)}
    with torch.no_grad():
        return torch.export.export(module, (), example, dynamic_shapes=dynamic)
