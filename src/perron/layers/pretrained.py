"""Encoders from pretrained `transformers` models."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from perron.arguments import Device, check_fraction
from perron.errors import SettingsError
from perron.files import package_folders
from perron.layers.basic import FastDropout, mix_layers
from perron.layers.encoders import Encoder

Layers = Literal["last", "mix"] | Sequence[int]
# Adam changes a logit by about the learning rate per step. This factor lets the mix
# settle on a layer within a few hundred steps.
_MIX_SCALE = 10.0


class HuggingFaceEncoder(Encoder):
    """Encoder that runs a `transformers` model on subword vectors.

    The subword embeddings are not part of it. They are in the classifier's
    `WordEmbedding`, as for any other encoder. Special tokens such as ``[CLS]`` and
    ``[SEP]`` are added to each text and removed from the output, so pooling sees only
    the text. To pool them as well, pass them as tokens of the text and set ``before``
    and ``after`` to 0.

    The states of layer k are the output of the first k transformer blocks; layer 0 is
    their input. The states of a frozen model never change, so they can be computed
    once (`layer_states`) and combined in each step (`combine`).

    Attributes:
        layers: Numbers of the layers whose states are used.
    """

    def __init__(
        self,
        embed_dim: int,
        config: Mapping[str, Any],
        before: int = 0,
        after: int = 0,
        freeze: bool = False,
        layers: Layers = "last",
        dropout: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Initialize random weights; use `load_pretrained` for pretrained ones.

        Args:
            embed_dim: Width of the subword vectors.
            config: Configuration of the model, as in its config.json.
            before: Number of special tokens before a text.
            after: Number of special tokens after a text.
            freeze: Whether to keep the weights fixed and turn dropout off.
            layers: ``"last"`` for the states of the last layer, ``"mix"`` for a learned
                weighted mean over all layers, or layer numbers, whose states are
                concatenated.
            dropout: Dropout probability for the entries of the states.
            device: Device of the parameters.
            dtype: Data type of the parameters.
        """
        super().__init__()
        check_fraction(dropout=dropout)
        self.freeze = freeze
        with torch.device(device) if device is not None else nullcontext():
            model = AutoModel.from_config(model_config(config), dtype=dtype)
        self.model: Any = remove_embeddings(model)
        factory: Any = {"device": device, "dtype": dtype}
        self.layers = _layer_numbers(layers, int(self.model.config.num_hidden_layers))
        self.mix_logits = None
        if layers == "mix":  # equal weights at first
            self.mix_logits = nn.Parameter(torch.zeros(len(self.layers), **factory))
        self.state_dim = int(self.model.config.hidden_size)
        self.out_dim = self.state_dim * (1 if layers == "mix" else len(self.layers))
        self.dropout = FastDropout(dropout)
        self.before = nn.Parameter(torch.zeros(before, embed_dim, **factory))
        self.after = nn.Parameter(torch.zeros(after, embed_dim, **factory))
        if freeze:
            for parameter in (*self.model.parameters(), self.before, self.after):
                parameter.requires_grad_(False)
            self.model.eval()

    def load_pretrained(
        self, model: PreTrainedModel, before: Sequence[int], after: Sequence[int]
    ) -> None:
        """Copy the weights of a pretrained model and the vectors of its special tokens.

        The embeddings and the pooler of the model are removed.

        Args:
            model: Pretrained model.
            before: Ids of the special tokens before a text.
            after: Ids of the special tokens after a text.
        """
        vectors = model.get_input_embeddings().weight
        assert isinstance(vectors, Tensor)
        with torch.no_grad():
            self.before.copy_(vectors[list(before)])
            self.after.copy_(vectors[list(after)])
        self.model.load_state_dict(remove_embeddings(model).state_dict())

    def train(self, mode: bool = True) -> "HuggingFaceEncoder":
        """Set training mode. A frozen model stays in evaluation mode."""
        super().train(mode)
        if self.freeze:
            self.model.eval()
        return self

    def encode(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n d"]:
        return self.combine(self.layer_states(states, mask))

    def layer_states(
        self, states: Float[Tensor, "b n e"], mask: Bool[Tensor, "b n"]
    ) -> Float[Tensor, "b n l h"]:
        """Return the states of each of the `layers`, for padded texts as in `encode`.

        The argument ``states`` holds the subword vectors.
        """
        inputs, attended = self._add_special_tokens(states, mask)
        is_last = self.layers == (self.model.config.num_hidden_layers,)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.freeze):
            output = self.model(
                inputs_embeds=inputs,
                attention_mask=attended.long(),
                output_hidden_states=not is_last,
            )
        tokens = slice(len(self.before), len(self.before) + states.shape[1])
        if is_last:
            return output.last_hidden_state[:, tokens].unsqueeze(-2)
        return torch.stack([output.hidden_states[k][:, tokens] for k in self.layers], 2)

    def combine(
        self, states: Float[Tensor, "*tokens l h"]
    ) -> Float[Tensor, "*tokens d"]:
        """Mix or concatenate the states of the `layers`, and apply dropout."""
        if self.mix_logits is None:
            return self.dropout(states.flatten(-2).to(self.before.dtype))
        weights = (_MIX_SCALE * self.mix_logits).softmax(0)
        return self.dropout(mix_layers(weights, states.movedim(-2, 0)))

    def _add_special_tokens(
        self, states: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Add the special tokens around each text, before its padding."""
        # Not len(states), which would fix the batch size in a traced graph.
        batch = states.shape[0]
        num_before, num_after = len(self.before), len(self.after)
        before = self.before.to(states.dtype).expand(batch, -1, -1)
        zeros = states.new_zeros(batch, num_after, states.shape[-1])
        inputs = torch.cat([before, states, zeros], 1)
        position = torch.arange(inputs.shape[1], device=states.device)
        ends = num_before + mask.sum(1, keepdim=True)  # (B, 1)
        for offset, vector in enumerate(self.after.to(states.dtype)):
            is_here = (position == ends + offset).unsqueeze(-1)
            inputs = torch.where(is_here, vector, inputs)
        return inputs, position < ends + num_after


def _layer_numbers(layers: Layers, num_layers: int) -> tuple[int, ...]:
    """Return the numbers of the selected layers of a model with `num_layers` blocks."""
    if layers == "last":
        return (num_layers,)
    if layers == "mix":
        return tuple(range(num_layers + 1))
    if isinstance(layers, str) or not layers:
        raise ValueError(
            f"layers must be 'last', 'mix' or a list of layer numbers, got {layers!r}."
        )
    for layer in layers:
        if not 0 <= layer <= num_layers:
            raise ValueError(
                f"layers must be between 0 and {num_layers}, the number of layers of "
                f"the model, got {layer}."
            )
    return tuple(layers)


def model_config(content: Mapping[str, Any]) -> Any:
    """Return the configuration object for the content of a config.json.

    Raises:
        ValueError: If the model is an encoder-decoder, needs custom code, or has no
            type.
    """
    settings = dict(content)
    model_type = settings.pop("model_type", None)
    if model_type is None or "auto_map" in settings:
        raise ValueError(
            "model must be an architecture of transformers, got a model with custom "
            "code or without a model_type."
        )
    config = AutoConfig.for_model(model_type, **settings)
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(
            f"model must be an encoder, got {model_type}, an encoder-decoder."
        )
    return config


def load_encoder(name: str) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a pretrained model in float32 and return it with its configuration.

    Args:
        name: Folder, or name of a model on the Hub.

    Raises:
        ValueError: If the model cannot be an encoder; see `model_config`.
        OSError: If the model cannot be found or read.
    """
    with hide_progress_bars():
        model = AutoModel.from_pretrained(name, dtype=torch.float32)
    content = dict(model.config.to_diff_dict())
    content.pop("_name_or_path", None)  # may be a path on this machine
    model_config(content)
    return remove_pooler(model), content


class PretrainedModel(NamedTuple):
    """A pretrained model and its tokenizer.

    Attributes:
        model: Model from `transformers`, without its pooler.
        config: Configuration of the model, as in its config.json.
        tokenizer: Tokenizer of the model.
    """

    model: PreTrainedModel
    config: dict[str, Any]
    tokenizer: Tokenizer

    @property
    def vectors(self) -> Float[Tensor, "v e"]:
        """Vectors of the subwords."""
        weight: Any = self.model.get_input_embeddings().weight
        return weight.detach()

    @property
    def max_tokens(self) -> int | None:
        """Maximum length of a text, including special tokens. None if unlimited."""
        positions = self.config.get("max_position_embeddings")
        if not isinstance(positions, int) or positions <= 0:
            return None
        if self.config["model_type"] in _POSITIONS_AFTER_PADDING:
            positions -= (self.config.get("pad_token_id") or 0) + 1
        return positions

    def truncated(self, layers: Layers) -> "PretrainedModel":
        """Return the model without blocks that `layers` does not use, if possible."""
        total = int(self.model.config.num_hidden_layers)
        num_layers = max(_layer_numbers(layers, total))
        if num_layers == total or self.config["model_type"] not in TRUNCATABLE:
            return self
        config = {**self.config, layers_key(self.config): num_layers}
        model = AutoModel.from_config(model_config(config), dtype=torch.float32)
        remove_pooler(model)
        weights = self.model.state_dict()
        model.load_state_dict({name: weights[name] for name in model.state_dict()})
        return self._replace(model=model, config=config)


def layers_key(config: Mapping[str, Any]) -> str:
    """Return the key of the number of blocks in a configuration."""
    return "n_layers" if config["model_type"] == "distilbert" else "num_hidden_layers"


# In these models a block ends with a normalization, so the states of layer k are also
# the output of a model with k blocks.
TRUNCATABLE = (
    "bert",
    "camembert",
    "distilbert",
    "electra",
    "mpnet",
    "roberta",
    "xlm-roberta",
)

# These models start counting positions after the id of the padding token.
_POSITIONS_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")


def load_pretrained_model(name: str, where: str) -> PretrainedModel:
    """Load a `transformers` model and its tokenizer.

    Args:
        name: Folder, name of a model on the Hub, or ``package:NAME`` for an installed
            package that contains a model.
        where: Setting that names the model, for error messages.

    Raises:
        SettingsError: If the model cannot be used.
    """
    if name.startswith(_PACKAGE):
        name = str(package_folder(name.removeprefix(_PACKAGE), where))
    _check_folder(name, where)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model, config = load_encoder(name)
    except (OSError, ValueError, RuntimeError) as error:
        # The first line has the reason. The others are general advice.
        problem = str(error).strip().splitlines()[0]
        hint = "" if Path(name).is_dir() else "is not a folder and "
        raise SettingsError(f"{where}: {hint}cannot be loaded: {problem}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise SettingsError(
            f"{where}: requires a fast tokenizer (tokenizer.json), which reports the "
            "position of each subword in the text."
        )
    return PretrainedModel(model, config, tokenizer.backend_tokenizer)


_PACKAGE = "package:"
# Locations of a config.json in a package.
_CONFIGS = ("config.json", "*/config.json", "*/*/config.json")


def package_folder(package: str, where: str) -> Path:
    """Return the folder of the only model in a package, without importing the package.

    Args:
        package: Name of the package, as for ``pip install``.
        where: Setting that names the package, for error messages.
    """
    folders = {
        path.parent
        for root in package_folders(package)
        for pattern in _CONFIGS
        for path in root.glob(pattern)
        if _is_model(path)
    }
    if len(folders) > 1:
        names = ", ".join(sorted(map(str, folders)))
        raise SettingsError(
            f"{where}: the package contains several models. Use hf:FOLDER with one of "
            f"{names}."
        )
    if not folders:
        raise SettingsError(
            f"{where}: package {package!r} is not installed or contains no model. "
            f"Install it with: pip install {package}"
        )
    return folders.pop()


def _is_model(config: Path) -> bool:
    """Return whether a config.json describes a model, not, say, a pooling module."""
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "model_type" in content


def _check_folder(name: str, where: str) -> None:
    """Raise an error for a wrong path, which transformers would treat as a Hub name."""
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise SettingsError(f"{where}: the folder has no config.json.")
    elif name.startswith((".", "/")) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise SettingsError(f"{where}: the folder does not exist.")


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide the progress bars that `transformers` shows while it loads a model."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def remove_pooler(model: Any) -> Any:
    """Remove the pooler of a model, which Perron replaces and would not train."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return model


def remove_embeddings(model: Any) -> Any:
    """Remove the input embeddings and the pooler of a model."""
    model.set_input_embeddings(None)
    return remove_pooler(model)
