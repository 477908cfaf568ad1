"""A model of `transformers` and its tokenizer, as an encoder to start from."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from perron.data.subwords import SubwordTokenizer
from perron.errors import SettingsError
from perron.models import Classifier
from perron.models.settings import PretrainedConfig


@dataclass(frozen=True)
class Pretrained:
    """What is taken over from a pretrained model.

    Attributes:
        tokenizer: its own.
        config: what it is.
        vectors: of its subwords, (V, E).
        model: its layers, for `HuggingFaceEncoder.take_over`.
    """

    tokenizer: SubwordTokenizer
    config: PretrainedConfig
    vectors: Tensor
    model: Any

    def fill(self, classifier: Classifier) -> None:
        """Put the weights into a classifier that was built for them."""
        from perron.layers.hugging_face import HuggingFaceEncoder

        encoder = classifier.encoder
        assert isinstance(encoder, HuggingFaceEncoder)
        classifier.embedding.set_vectors(self.vectors)
        encoder.take_over(self.model, self.config.before, self.config.after)


def read_pretrained(name: str, max_words: int) -> Pretrained:
    """Read a model that `transformers` knows, and refuse what cannot be used.

    Args:
        name: a folder, or a name on the hub.
        max_words: how many subwords of a text it will read.
    """
    where = f"model.encoder = 'hf:{name}'"
    try:
        from transformers import AutoTokenizer

        from perron.layers.hugging_face import read_encoder
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{where}: needs {error.name}: pip install 'perron[hf]'"
        ) from error
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model, content = read_encoder(name)
    except (OSError, ValueError, RuntimeError) as error:
        # Only the first line tells what is wrong; the rest is about the library.
        problem = str(error).strip().splitlines()[0]
        raise SettingsError(f"{where}: cannot be used: {problem}") from error
    if not getattr(tokenizer, "is_fast", False):
        raise SettingsError(
            f"{where}: its tokenizer has no tokenizer.json, so that it cannot tell "
            "where in the text a piece stands"
        )
    subwords = SubwordTokenizer(tokenizer.backend_tokenizer)
    _check_words(len(subwords.words), model.config.vocab_size, where)
    marks = subwords.marks
    _check_length(model.config, max_words + len(marks.before + marks.after), where)
    config = PretrainedConfig(config=content, before=marks.before, after=marks.after)
    vectors = model.get_input_embeddings().weight
    assert isinstance(vectors, Tensor)
    vectors = vectors.detach().clone()
    return Pretrained(subwords, config, vectors, model)


def _check_words(words: int, vectors: int, where: str) -> None:
    """Refuse the empty tokenizer that `transformers` makes up where files are missing.

    A model may have some vectors more than its tokenizer has words, but not twice.
    """
    if not vectors // 2 < words <= vectors:
        raise SettingsError(
            f"{where}: cannot be used: its tokenizer has {words} words, but the model "
            f"{vectors} vectors of words; are the files of the tokenizer missing?"
        )


def _check_length(config: Any, pieces: int, where: str) -> None:
    most = getattr(config, "max_position_embeddings", None)
    if not isinstance(most, int) or most <= 0:
        return
    # RoBERTa and its kin number places from behind the padding's id.
    if config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        most -= (config.pad_token_id or 0) + 1
    if pieces > most:
        raise SettingsError(
            f"{where}: reads {most} pieces of words with the marks around them; set "
            f"text.max_words to {most - 2} or less"
        )
