"""A model of `transformers` and its tokenizer, as an encoder to start from."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from perron.data.subwords import SubwordTokenizer
from perron.errors import SettingsError
from perron.models import Classifier
from perron.models.settings import PretrainedConfig

if TYPE_CHECKING:
    from perron.models.pretrained import PretrainedWeights

# These number places from behind the padding's id.
_PLACES_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")


@dataclass(frozen=True)
class Pretrained:
    """What is taken over from a pretrained model.

    Attributes:
        tokenizer: its own.
        config: what it is.
        weights: its layers and vectors.
    """

    tokenizer: SubwordTokenizer
    config: PretrainedConfig
    weights: "PretrainedWeights"

    @property
    def vectors(self) -> Tensor:
        """Of its subwords, (V, E)."""
        return self.weights.vectors

    @property
    def width(self) -> int:
        """Of the vectors."""
        return int(self.vectors.shape[1])

    def fill(self, classifier: Classifier) -> None:
        """Put the weights into a classifier that was built for them."""
        self.weights.fill(classifier, self.config)


def read_pretrained(name: str, max_words: int) -> Pretrained:
    """Read a model that `transformers` knows, and refuse what cannot be used.

    Args:
        name: a folder, or a name on the hub.
        max_words: how many subwords of a text it will read.
    """
    where = f"model.encoder = 'hf:{name}'"
    try:
        from transformers import AutoTokenizer

        from perron.models.pretrained import PretrainedWeights
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{where}: needs {error.name}: pip install 'perron[hf]'"
        ) from error
    _check_folder(name, where)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        weights = PretrainedWeights(name)
    except (OSError, ValueError, RuntimeError) as error:
        # Only the first line tells what is wrong; the rest is about the library.
        problem = str(error).strip().splitlines()[0]
        found = "" if Path(name).is_dir() else "there is no such folder, and it "
        raise SettingsError(f"{where}: {found}cannot be used: {problem}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise SettingsError(
            f"{where}: its tokenizer has no tokenizer.json, so that it cannot tell "
            "where in the text a piece stands"
        )
    subwords = SubwordTokenizer(tokenizer.backend_tokenizer)
    _check_words(len(subwords.words), len(weights.vectors), where)
    marks = subwords.marks
    _check_length(weights.content, max_words, len(marks.before + marks.after), where)
    config = PretrainedConfig(
        config=weights.content, before=marks.before, after=marks.after
    )
    return Pretrained(subwords, config, weights)


def _check_folder(name: str, where: str) -> None:
    """Refuse what is no model's folder before the library takes it for a name."""
    folder = Path(name)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise SettingsError(f"{where}: has no config.json: no model is in this folder")
    if not folder.is_dir() and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise SettingsError(f"{where}: there is no such folder")
    if name.startswith((".", "/")) and not folder.is_dir():
        raise SettingsError(f"{where}: there is no such folder")


def _check_words(words: int, vectors: int, where: str) -> None:
    """Refuse the empty tokenizer that `transformers` makes up where files are missing.

    A model may have some vectors more than its tokenizer has words, but not twice.
    """
    if not vectors // 2 < words <= vectors:
        raise SettingsError(
            f"{where}: cannot be used: its tokenizer has {words} words, but the model "
            f"{vectors} vectors of words; are the files of the tokenizer missing?"
        )


def _check_length(
    config: Mapping[str, Any], words: int, marks: int, where: str
) -> None:
    """Refuse texts that are longer than the model has places for."""
    places = config.get("max_position_embeddings")
    if not isinstance(places, int) or places <= 0:
        return
    if config["model_type"] in _PLACES_AFTER_PADDING:
        places -= (config.get("pad_token_id") or 0) + 1
    if words + marks > places:
        raise SettingsError(
            f"{where}: reads {places} pieces of words, {marks} of which are marks "
            f"around the text; set text.max_words to {places - marks} or less"
        )
