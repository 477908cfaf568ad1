"""A model of `transformers` and its tokenizer, as an encoder to start from."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from perron.errors import SettingsError
from perron.files import package_folders
from perron.models import Classifier
from perron.models.config import HuggingFaceSettings, PretrainedConfig
from perron.text.tokenizers import Marks, SubwordTokenizer

# These number places from behind the padding's id.
_PLACES_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")
_PACKAGE = "package:"
# Where in a package a model may lie.
_CONFIGS = ("config.json", "*/config.json", "*/*/config.json")


@dataclass(frozen=True)
class Pretrained:
    """What is taken over from a pretrained model.

    Attributes:
        tokenizer: its own.
        config: what it is.
        model: the pretrained model of `transformers`.
        vectors: its subword vectors, (V, E).
        marked: the marks around a text are words of it.
    """

    tokenizer: SubwordTokenizer
    config: PretrainedConfig
    model: Any
    vectors: Tensor
    marked: bool = False

    @property
    def width(self) -> int:
        """Of the vectors."""
        return int(self.vectors.shape[1])

    def fill(self, classifier: Classifier) -> None:
        """Put the weights into a classifier that was built for them."""
        settings = classifier.config.settings.encoder
        assert isinstance(settings, HuggingFaceSettings)
        # Else the marks would stand around each text twice, or not at all.
        assert settings.marks == self.marked, "read_pretrained was told otherwise"
        encoder: Any = classifier.encoder
        classifier.embedding.set_vectors(self.vectors)
        encoder.take_over(self.model, self.config.before, self.config.after)


def read_pretrained(name: str, max_words: int, marks: bool = False) -> Pretrained:
    """Read a model that `transformers` knows, and refuse what cannot be used.

    Args:
        name: a folder; a name on the hub; or ``package:NAME``, a Python package that
            brings a model.
        max_words: how many subwords of a text it will read.
        marks: let the marks around a text, such as ``[CLS]``, be words of it, which
            are pooled and counted like any other.
    """
    where = f"model.encoder = 'hf:{name}'"
    try:
        from transformers import AutoTokenizer

        from perron.layers.pretrained import read_encoder
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{where}: needs {error.name}: pip install 'perron[hf]'"
        ) from error
    if name.startswith(_PACKAGE):
        name = str(package_folder(name.removeprefix(_PACKAGE), where))
    _check_folder(name, where)
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model, content = read_encoder(name)
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
    subwords = SubwordTokenizer(tokenizer.backend_tokenizer, marks)
    weight: Any = model.get_input_embeddings().weight
    vectors: Tensor = weight.detach().clone()
    _check_words(len(subwords.words), len(vectors), where)
    inside = len(subwords.around.before + subwords.around.after)
    if inside >= max_words:
        raise SettingsError(
            f"{where}: {inside} marks around a text leave no room for words; set "
            f"text.max_words to {inside + 1} or more"
        )
    # Those that the encoder puts around a text.
    before, after = Marks((), ()) if marks else subwords.marks
    _check_length(content, max_words, len(before + after), where)
    config = PretrainedConfig(config=content, before=before, after=after)
    return Pretrained(subwords, config, model, vectors, marks)


def package_folder(package: str, where: str) -> Path:
    """Return the folder of the one model inside a package, none of whose code is run.

    Args:
        package: as one would install it.
        where: of the setting that names it, for errors.
    """
    roots = package_folders(package)
    if not roots:
        raise SettingsError(
            f"{where}: there is no package {package} here; if it is "
            f"one with a model: pip install {package}"
        )
    found = {
        path.parent
        for root in roots
        for pattern in _CONFIGS
        for path in root.glob(pattern)
        if _is_model(path)
    }
    if len(found) > 1:
        told = ", ".join(sorted(map(str, found)))
        raise SettingsError(f"{where}: has several models: take hf: and one of {told}")
    if not found:
        raise SettingsError(
            f"{where}: has no model: no folder in it has the config.json of one"
        )
    return found.pop()


def _is_model(config: Path) -> bool:
    """Tell a model's config.json from others, such as that of a pooling."""
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and "model_type" in content


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
