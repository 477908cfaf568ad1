"""A classifier with the interface for other runtimes: padded ids and lengths."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from perron.models import Classifier
from perron.models.config import Kind
from perron.pooling import CentralityPool

# Axes of each input, in the order of the arguments of `ExportModule.forward`. The
# lengths of a document are those of its sentences.
INPUTS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "text": {"ids": ("batch", "words"), "lengths": ("batch",)},
    "pair": {
        "ids": ("batch", "words"),
        "lengths": ("batch",),
        "pair_ids": ("batch", "pair_words"),
        "pair_lengths": ("batch",),
    },
    "document": {
        "ids": ("batch", "sentences", "words"),
        "lengths": ("batch", "sentences"),
    },
}
# Outputs that are weights, with their aggregator and axes.
_WEIGHTS: dict[Kind, dict[str, tuple[str, tuple[str, ...]]]] = {
    "text": {"weights": ("aggregator", ("batch", "words"))},
    "pair": {
        "weights": ("aggregator", ("batch", "words")),
        "pair_weights": ("aggregator", ("batch", "pair_words")),
    },
    "document": {
        "weights": ("aggregator", ("batch", "sentences", "words")),
        "sentence_weights": ("sentence_aggregator", ("batch", "sentences")),
    },
}


class ExportModule(nn.Module):
    """Classifier in float32 and evaluation mode that maps `inputs` to `outputs`.

    Args:
        model: Classifier to export. It is copied.

    Raises:
        ValueError: If the model uses the iterative solver, which cannot be traced.
    """

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        for name, module in model.named_modules():
            if isinstance(module, CentralityPool) and module.solver != "direct":
                raise ValueError(
                    f"{name}: solver must be 'direct' for export, got "
                    f"{module.solver}. The number of power iterations depends on the "
                    "data, so they cannot be traced."
                )
        self.model = deepcopy(model).to("cpu", torch.float32).eval()
        self.model.requires_grad_(False)
        self.kind: Kind = model.kind

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """Names of the int64 inputs and their axes."""
        return INPUTS[self.kind]

    @property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        """Names of the float32 outputs and their axes."""
        outputs: dict[str, tuple[str, ...]] = {
            "probabilities": ("batch", "labels"),
            "logits": ("batch", "labels"),
            "vector": ("batch", "width"),
        }
        for name, (aggregator, axes) in _WEIGHTS[self.kind].items():
            if getattr(self.model, aggregator).has_weights:
                outputs[name] = axes
        return outputs

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor,
        pair_ids: Tensor | None = None,
        pair_lengths: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the outputs by name. The ids in the padding are ignored.

        Args:
            ids: Token ids, (B, N) for B texts of up to N tokens, or (B, S, N) for
                documents of up to S sentences.
            lengths: Number of tokens in each text, (B), or in each sentence, (B, S). A
                document ends with its last nonempty sentence.
            pair_ids: Token ids of the second texts, (B, N'), for pair models.
            pair_lengths: Number of tokens in each second text, (B).
        """
        mask = _mask(ids, lengths)
        inputs = {"ids": ids, "mask": mask}
        shapes = [mask.shape, mask.shape[:2]]  # of the weights
        if pair_ids is not None and pair_lengths is not None:
            inputs["pair_ids"] = pair_ids
            inputs["pair_mask"] = _mask(pair_ids, pair_lengths)
            shapes[1] = pair_ids.shape
        logits, vector, pooled = self.model(**inputs)
        weights = [
            output.weights.reshape(shape)
            for output, shape in zip(pooled, shapes, strict=False)
            if output.weights is not None
        ]
        values = (logits.softmax(-1), logits, vector, *weights)
        return dict(zip(self.outputs, values, strict=True))


def _mask(ids: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(ids.shape[-1], device=ids.device) < lengths.unsqueeze(-1)


def trace(module: ExportModule) -> torch.export.ExportedProgram:
    """Trace the module with `torch.export`, keeping Perron's custom operators."""
    # torch.export would specialize on sizes 0 and 1.
    sizes = {"batch": 2, "words": 3, "pair_words": 4, "sentences": 5}
    config = module.model.config
    # A pretrained encoder has a limited number of positions.
    limits: dict[str, int] = {}
    if config.pretrained is not None:
        limits = {"words": config.max_words, "pair_words": config.max_words}
    dims = {axis: torch.export.Dim(axis, min=1, max=limits.get(axis)) for axis in sizes}
    example, dynamic = {}, {}
    for name, axes in module.inputs.items():
        example[name] = torch.ones([sizes[axis] for axis in axes], dtype=torch.long)
        dynamic[name] = {index: dims[axis] for index, axis in enumerate(axes)}
    with torch.no_grad():
        return torch.export.export(module, (), example, dynamic_shapes=dynamic)
