"""A classifier as other runtimes see it: padded ids and lengths in, numbers out."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from perron.models import Classifier
from perron.models.config import Kind
from perron.pooling import CentralityPool

# The axes of each input, in the order of `ExportModule`'s arguments: B texts, S
# sentences, N words. Lengths of a document are those of its sentences.
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
# The outputs that are weights: the aggregator that they are of, and their axes.
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
    """Computes `outputs` from `inputs`, in float32 and without dropout."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        for name, part in model.named_modules():
            if isinstance(part, CentralityPool) and part.solver != "direct":
                raise ValueError(
                    f"{name}: the power method stops when it is done, which a graph "
                    'cannot; set solver = "direct"'
                )
        self.model = deepcopy(model).to("cpu", torch.float32).eval()
        self.model.requires_grad_(False)
        self.kind: Kind = model.kind

    @property
    def inputs(self) -> dict[str, tuple[str, ...]]:
        """The names of the inputs, int64, and of their axes."""
        return INPUTS[self.kind]

    @property
    def outputs(self) -> dict[str, tuple[str, ...]]:
        """The names of the outputs, float32, and of their axes."""
        found: dict[str, tuple[str, ...]] = {
            "probabilities": ("batch", "labels"),
            "logits": ("batch", "labels"),
            "vector": ("batch", "width"),
        }
        for name, (aggregator, axes) in _WEIGHTS[self.kind].items():
            if getattr(self.model, aggregator).has_weights:
                found[name] = axes
        return found

    def forward(
        self,
        ids: Tensor,
        lengths: Tensor,
        pair_ids: Tensor | None = None,
        pair_lengths: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the outputs; what the ids behind a text's words are does not matter.

        Args:
            ids: (B, N), or (B, S, N) of documents.
            lengths: (B), the number of words of each text; or (B, S), those of each
                sentence, where a document ends with its last sentence that has words.
            pair_ids: (B, N') of the second texts, for models of pairs.
            pair_lengths: (B), likewise.
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
            part.weights.reshape(shape)
            for part, shape in zip(pooled, shapes, strict=False)
            if part.weights is not None
        ]
        values = (logits.softmax(-1), logits, vector, *weights)
        return dict(zip(self.outputs, values, strict=True))


def _mask(ids: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(ids.shape[-1], device=ids.device) < lengths.unsqueeze(-1)


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
