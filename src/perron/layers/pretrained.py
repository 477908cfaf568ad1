"""Any encoder of `transformers`, between vectors of subwords and pooling."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.utils import logging

from perron.arguments import Device
from perron.layers.encoders import Encoder


class HuggingFaceEncoder(Encoder):
    """The layers of a pretrained model: vectors of subwords in, states out.

    Its matrix of vectors is not in here: that is the classifier's `WordEmbedding`, as
    for any other encoder. Marks such as ``[CLS]`` and ``[SEP]`` are put around each
    text here and taken off again, so that pooling sees the text alone; where pooling
    is to see them, they come as words of the text, and there are none to put.
    """

    def __init__(
        self,
        dim: int,
        config: Mapping[str, Any],
        before: int = 0,
        after: int = 0,
        freeze: bool = False,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up random weights; `take_over` brings pretrained ones.

        Args:
            dim: Width of the vectors.
            config: Configuration of the model, as in its config.json.
            before: Number of special tokens before a text.
            after: Number of special tokens after it.
            freeze: Leave the model as it is while training, dropout included.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        self.freeze = freeze
        with torch.device(device) if device is not None else nullcontext():
            model = AutoModel.from_config(model_config(config), dtype=dtype)
        self.model: Any = without_vectors(model)
        self.out_dim = int(self.model.config.hidden_size)
        factory: Any = {"device": device, "dtype": dtype}
        self.before = nn.Parameter(torch.zeros(before, dim, **factory))
        self.after = nn.Parameter(torch.zeros(after, dim, **factory))
        if freeze:
            self.requires_grad_(False)
            self.model.eval()

    def take_over(
        self, model: PreTrainedModel, before: Sequence[int], after: Sequence[int]
    ) -> None:
        """Copy the weights of a pretrained model, and the vectors of its marks."""
        vectors = model.get_input_embeddings().weight
        assert isinstance(vectors, Tensor)
        with torch.no_grad():
            self.before.copy_(vectors[list(before)])
            self.after.copy_(vectors[list(after)])
        self.model.load_state_dict(without_vectors(model).state_dict())

    def train(self, mode: bool = True) -> "HuggingFaceEncoder":
        """Switch dropout; a frozen model has none."""
        super().train(mode)
        if self.freeze:
            self.model.eval()
        return self

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        first = len(self.before)
        marked, seen = self._marked(states, mask)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            found = self.model(inputs_embeds=marked, attention_mask=seen.long())
        return found.last_hidden_state[:, first : first + states.shape[1]]

    def _marked(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Put the marks around each text, the last ones right behind its last word."""
        # Not len(states), which would fix the number of texts in a traced graph.
        texts, first, last = states.shape[0], len(self.before), len(self.after)
        before = self.before.to(states.dtype).expand(texts, -1, -1)
        room = states.new_zeros(texts, last, states.shape[-1])
        marked = torch.cat([before, states, room], 1)
        place = torch.arange(marked.shape[1], device=states.device)
        ends = first + mask.sum(1, keepdim=True)  # (B, 1)
        for number, mark in enumerate(self.after.to(states.dtype)):
            here = (place == ends + number).unsqueeze(-1)
            marked = torch.where(here, mark, marked)
        return marked, place < ends + last


def model_config(content: Mapping[str, Any]) -> Any:
    """Return the configuration object for what a config.json holds.

    Raises:
        ValueError: the model cannot be a fusion layer, or is code of its own.
    """
    settings = dict(content)
    kind = settings.pop("model_type", None)
    if kind is None or "auto_map" in settings:
        raise ValueError(
            "the model brings code of its own, or does not say what it is; only models "
            "that transformers has itself can be used"
        )
    config = AutoConfig.for_model(kind, **settings)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{kind} is an encoder with a decoder; take an encoder alone")
    return config


def read_encoder(name: str) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Return a pretrained model in float32, and its configuration.

    Args:
        name: a folder, or a name on the hub.

    Raises:
        ValueError: see `model_config`.
        OSError: it cannot be found or read.
    """
    with without_bars():
        model = AutoModel.from_pretrained(name, dtype=torch.float32)
    content = dict(model.config.to_diff_dict())
    content.pop("_name_or_path", None)  # a place on this machine
    model_config(content)
    return without_pooler(model), content


@contextmanager
def without_bars() -> Iterator[None]:
    """Keep `transformers` from drawing a bar while it loads a model."""
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


def without_pooler(model: Any) -> Any:
    """Take away the pooling that Perron's stands for, which nothing would train."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return model


def without_vectors(model: Any) -> Any:
    """Take away the matrix of vectors, and the pooling."""
    model.set_input_embeddings(None)
    return without_pooler(model)
