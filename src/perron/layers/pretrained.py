"""Pretrained encoders of `transformers`: reading one, and its layers as an encoder."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from perron.arguments import Device
from perron.errors import SettingsError
from perron.files import package_folders
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
        embed_dim: int,
        config: Mapping[str, Any],
        before: int = 0,
        after: int = 0,
        freeze: bool = False,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Set up random weights; `load_pretrained` brings pretrained ones.

        Args:
            embed_dim: Width of the vectors.
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
        self.model: Any = remove_embeddings(model)
        self.out_dim = int(self.model.config.hidden_size)
        factory: Any = {"device": device, "dtype": dtype}
        self.before = nn.Parameter(torch.zeros(before, embed_dim, **factory))
        self.after = nn.Parameter(torch.zeros(after, embed_dim, **factory))
        if freeze:
            self.requires_grad_(False)
            self.model.eval()

    def load_pretrained(
        self, model: PreTrainedModel, before: Sequence[int], after: Sequence[int]
    ) -> None:
        """Copy the weights of a pretrained model, and the vectors of its marks."""
        vectors = model.get_input_embeddings().weight
        assert isinstance(vectors, Tensor)
        with torch.no_grad():
            self.before.copy_(vectors[list(before)])
            self.after.copy_(vectors[list(after)])
        self.model.load_state_dict(remove_embeddings(model).state_dict())

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
        name: A folder, or a name on the hub.

    Raises:
        ValueError: The model cannot be an encoder; see `model_config`.
        OSError: The model cannot be found or read.
    """
    with hide_progress_bars():
        model = AutoModel.from_pretrained(name, dtype=torch.float32)
    content = dict(model.config.to_diff_dict())
    content.pop("_name_or_path", None)  # a place on this machine
    model_config(content)
    return remove_pooler(model), content


class PretrainedModel(NamedTuple):
    """A pretrained model and its tokenizer.

    Attributes:
        model: The model of `transformers`, without its pooler.
        config: Its configuration, as in its config.json.
        tokenizer: Its tokenizer.
    """

    model: PreTrainedModel
    config: dict[str, Any]
    tokenizer: Tokenizer

    @property
    def vectors(self) -> Float[Tensor, "v e"]:
        """The vectors of its subwords."""
        weight: Any = self.model.get_input_embeddings().weight
        return weight.detach()

    @property
    def max_tokens(self) -> int | None:
        """The longest text that it reads, special tokens included; None if any."""
        positions = self.config.get("max_position_embeddings")
        if not isinstance(positions, int) or positions <= 0:
            return None
        if self.config["model_type"] in _POSITIONS_AFTER_PADDING:
            positions -= (self.config.get("pad_token_id") or 0) + 1
        return positions


# These models number positions from the id of the padding on.
_POSITIONS_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")


def read_pretrained(name: str, where: str) -> PretrainedModel:
    """Read a model that `transformers` knows, and its tokenizer.

    Args:
        name: A folder; a name on the hub; or ``package:NAME``, an installed package
            that contains a model.
        where: Setting that names the model, for errors.

    Raises:
        SettingsError: The model cannot be used.
    """
    if name.startswith(_PACKAGE):
        name = str(package_folder(name.removeprefix(_PACKAGE), where))
    _check_folder(name, where)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model, config = read_encoder(name)
    except (OSError, ValueError, RuntimeError) as error:
        # Only the first line says what is wrong; the rest is about the library.
        problem = str(error).strip().splitlines()[0]
        found = "" if Path(name).is_dir() else "there is no such folder, and it "
        raise SettingsError(f"{where}: {found}cannot be used: {problem}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise SettingsError(
            f"{where}: its tokenizer must be a fast one, with a tokenizer.json, which "
            "knows the position of each subword in the text."
        )
    return PretrainedModel(model, config, tokenizer.backend_tokenizer)


_PACKAGE = "package:"
# Where in a package the configuration of a model may be.
_CONFIGS = ("config.json", "*/config.json", "*/*/config.json")


def package_folder(package: str, where: str) -> Path:
    """Return the folder of the only model in a package, without running its code.

    Args:
        package: Name of the package as it is installed.
        where: Setting that names it, for errors.
    """
    found = {
        path.parent
        for root in package_folders(package)
        for pattern in _CONFIGS
        for path in root.glob(pattern)
        if _is_model(path)
    }
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise SettingsError(
            f"{where}: the package has several models. Choose one with hf: and one of "
            f"{names}."
        )
    if not found:
        raise SettingsError(
            f"{where}: there is no model in the package, or no package {package} here. "
            f"If it has one, install it with pip install {package}."
        )
    return found.pop()


def _is_model(config: Path) -> bool:
    """Tell the config.json of a model from others, such as that of a pooling."""
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "model_type" in content


def _check_folder(name: str, where: str) -> None:
    """Refuse what is not a model folder before the library takes it for a name."""
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise SettingsError(f"{where}: there is no config.json in this folder.")
    elif name.startswith((".", "/")) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise SettingsError(f"{where}: there is no such folder.")


@contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Keep `transformers` from drawing a bar while it loads a model."""
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


def remove_pooler(model: Any) -> Any:
    """Take away the pooling that Perron's stands for, which nothing would train."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    return model


def remove_embeddings(model: Any) -> Any:
    """Take away the matrix of vectors, and the pooling."""
    model.set_input_embeddings(None)
    return remove_pooler(model)
