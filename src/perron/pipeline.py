"""Pipelines: trained models with their tokenizers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from perron.errors import DataError
from perron.explain import Explanation, explain
from perron.files import make_folder
from perron.hub import find_model, hub_model, model_card, short_names
from perron.models import Classifier, ModelConfig, PairClassifier, load_model
from perron.models.config import (
    CARD,
    TOKENIZER,
    Files,
    HuggingFaceSettings,
    file_location,
    folder_files,
    model_files,
    read_bytes,
    write_files,
)
from perron.text.encoding import TextProcessor
from perron.text.sampling import collate, evaluation_batches
from perron.text.tokenizers import SubwordTokenizer, TextTokenizer, WordTokenizer

_CHUNK_SIZE = 4096  # number of texts that are sorted by length together


class Pipeline:
    """A trained model with its tokenizer.

    Returned by `perron.load`. `predict`, `predict_proba` and `encode` accept a list of
    texts or a single string. A pair model needs two lists or two strings. Texts may be
    empty. `save_pretrained`, `push_to_hub` and `from_pretrained` work as in
    `huggingface_hub`, but pickles are never loaded.
    """

    def __init__(
        self,
        model: Classifier,
        processor: TextProcessor,
        name: str = "model",
        card: str | None = None,
    ) -> None:
        """Initialize a pipeline.

        Args:
            model: Trained model.
            processor: Text processor, which converts texts to token ids.
            name: Name of the model in graph records and in the viewer.
            card: Model card to save with the model, in Markdown. Defaults to a
                generated card.
        """
        self.model = model.eval()
        self.processor = processor
        self.name = name
        self.card = card

    def __repr__(self) -> str:
        settings = self.model.config.settings
        return (
            f"Pipeline({settings.kind}, {settings.encoder.name}, "
            f"{settings.aggregator.name}; {', '.join(self.labels)})"
        )

    def pretokenized(self) -> "Pipeline":
        """Return the same pipeline for texts with words separated by whitespace."""
        processor = self.processor.for_input(True, self.processor.sentence_separator)
        return Pipeline(self.model, processor, self.name, self.card)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the columns of `predict_proba`."""
        return self.model.config.labels

    @overload
    def predict(  # type: ignore[overload-overlap]  # a str is a Sequence[str] too
        self, texts: str, pairs: str | None = None, batch_size: int = 64
    ) -> str: ...

    @overload
    def predict(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 64,
    ) -> list[str]: ...

    def predict(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        batch_size: int = 64,
    ) -> str | list[str]:
        """Return the most probable label of each text, or the label of one text.

        Args:
            texts: Texts to classify, or one text.
            pairs: Second texts, or one second text, for pair models.
            batch_size: Number of texts per batch.
        """
        best = self.predict_proba(texts, pairs, batch_size).argmax(-1)
        if isinstance(texts, str):
            return self.labels[best]
        return [self.labels[row] for row in best]

    def predict_proba(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        batch_size: int = 64,
    ) -> np.ndarray:
        """Return the probability of each class, of shape (texts, classes), in float32.

        The shape is (classes,) for a single text. See `predict` for the arguments.
        """
        if isinstance(texts, str):
            if not (pairs is None or isinstance(pairs, str)):
                raise ValueError("pairs must be a string if texts is one, got a list.")
            second = None if pairs is None else [pairs]
            return self.predict_proba([texts], second, batch_size)[0]
        _check(texts, pairs, self.processor.kind == "pair")

        def probabilities(inputs: dict[str, Tensor]) -> Tensor:
            return self.model(**inputs).logits.float().softmax(-1)

        return self._run(probabilities, texts, pairs, batch_size, len(self.labels))

    def encode(self, texts: str | Sequence[str], batch_size: int = 64) -> np.ndarray:
        """Return the pooled vector of each text, of shape (texts, width), in float32.

        The shape is (width,) for a single text. A pair model can encode single texts,
        too, because it encodes both sides in the same way.
        """
        if isinstance(texts, str):
            return self.encode([texts], batch_size)[0]
        _check(texts, None, False)
        model, processor = self.model, self.processor
        if isinstance(model, PairClassifier):
            single = replace(processor, kind="text")
            width = model.aggregator.out_dim

            def pooled(inputs: dict[str, Tensor]) -> Tensor:
                return model.pool(
                    inputs["ids"], lengths=inputs["lengths"]
                ).vector.float()

            return self._run(pooled, texts, None, batch_size, width, single)

        def vectors(inputs: dict[str, Tensor]) -> Tensor:
            return model(**inputs).vector.float()

        return self._run(vectors, texts, None, batch_size, model.vector_dim)

    def explain(self, text: str, pair: str | None = None) -> Explanation:
        """Return the prediction for a text with its words, weights and edges."""
        _check([text], None if pair is None else [pair], self.processor.kind == "pair")
        return explain(self.model, self.processor, text, pair, self.name)

    def _run(
        self,
        compute: Callable[[dict[str, Tensor]], Tensor],
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        batch_size: int,
        width: int,
        processor: TextProcessor | None = None,
    ) -> np.ndarray:
        """Compute one row per text, in batches of texts of similar length."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        device = next(self.model.parameters()).device
        results = np.empty((len(texts), width), np.float32)
        self.model.eval()
        for begin, rows in self._chunks(processor or self.processor, texts, pairs):
            sizes = np.array([sum(len(ids) for ids in row.values()) for row in rows])
            for part in evaluation_batches(sizes, batch_size):
                inputs = collate([rows[row] for row in part])
                moved = {name: tensor.to(device) for name, tensor in inputs.items()}
                with torch.inference_mode():
                    results[begin + part] = compute(moved).cpu().numpy()
        return results

    def _chunks(
        self,
        processor: TextProcessor,
        texts: Sequence[str],
        pairs: Sequence[str] | None,
    ) -> Iterator[tuple[int, list[dict[str, list[int]]]]]:
        for begin in range(0, len(texts), _CHUNK_SIZE):
            end = begin + _CHUNK_SIZE
            second = None if pairs is None else pairs[begin:end]
            yield begin, processor.encode(texts[begin:end], second)

    def save_pretrained(self, save_directory: str | Path, **hub: Any) -> str | None:
        """Save the tokenizer, the model card, the weights and, last, config.json.

        Args:
            save_directory: Folder to save to. It is created if it does not exist.
            hub: Options of `push_to_hub`, with ``push_to_hub=True``.
        """
        make_folder(Path(save_directory))
        return hub_model(self._save).save_pretrained(save_directory, **hub)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the files that `save_pretrained` writes; return the URL of the commit.

        Args:
            repo_id: Name of the model on the Hub, such as ``owner/model``.
            options: Options of `PyTorchModelHubMixin.push_to_hub` in huggingface_hub,
                such as ``private`` and ``token``.
        """
        return hub_model(self._save).push_to_hub(repo_id, **options)

    def _save(self, folder: Path) -> None:
        write_files(folder, self.to_files())

    def to_files(self) -> dict[str, bytes]:
        """Return the content of each file that `save_pretrained` writes, by name."""
        card = self.card or model_card(self.model.config)
        return {
            TOKENIZER: self.processor.tokenizer.to_json().encode(),
            CARD: card.encode(),
            **model_files(self.model.config, self.model.state_dict()),
        }

    @classmethod
    def from_files(cls, files: Files, name: str = "model") -> "Pipeline":
        """Load a pipeline from files in memory or on disk, without running code.

        The model is on the CPU. The random state of torch is not changed.

        Args:
            files: Content or path of each file, by name; see `to_files`.
            name: Name of the model in graph records and in the viewer.
        """
        model = load_model(files)
        config = model.config
        processor = TextProcessor(
            _read_tokenizer(config, files),
            config.settings.kind,
            config.max_words,
            config.max_sentences,
        )
        card = read_bytes(files, CARD).decode() if CARD in files else None
        return cls(model, processor, name, card)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
    ) -> "Pipeline":
        """Load a pipeline saved by `save_pretrained`, without running code.

        All arguments except the first are only used for models on the Hub.

        Args:
            pretrained_model_name_or_path: Folder of a model, or name of a model on the
                Hub; see `perron.load`.
            revision: Branch, tag or commit. Defaults to the main branch.
            token: Access token. Defaults to the one stored by ``hf auth login``.
            cache_dir: Cache folder. Defaults to the cache of huggingface_hub.
            force_download: Whether to download files even if they are in the cache.
            local_files_only: Whether to use only files in the cache.
        """
        folder, name = find_model(
            pretrained_model_name_or_path,
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
        )
        return cls.from_files(folder_files(folder), name)


def _read_tokenizer(config: ModelConfig, files: Files) -> TextTokenizer:
    """Read the tokenizer of a model and check that its size matches the model."""
    where, encoder = file_location(files, TOKENIZER), config.settings.encoder
    if TOKENIZER not in files:
        raise DataError("is missing, so texts cannot be tokenized", where)
    content = read_bytes(files, TOKENIZER)
    tokenizer: TextTokenizer
    if isinstance(encoder, HuggingFaceSettings):
        tokenizer = SubwordTokenizer.from_json(
            content, where, encoder.keep_special_tokens
        )
    else:
        tokenizer = WordTokenizer.from_json(content, where)
    words = len(tokenizer.words)
    # A pretrained model may have more vectors than its tokenizer has tokens.
    if words > config.vocab_size or (
        words < config.vocab_size and config.pretrained is None
    ):
        raise DataError(
            f"must have {config.vocab_size} tokens to match the model, got {words}. It "
            "belongs to another model.",
            where,
        )
    return tokenizer


def load(name: str | Path) -> Pipeline:
    """Load a trained model: ``load("runs/demo").predict(["a fine film"])``.

    Args:
        name: Folder of a model, or name of a model on the Hugging Face Hub.
            ``hub:owner/model`` always refers to the Hub. A string ``owner/model``
            refers to the Hub if there is no folder ``owner``. Everything else is a
            folder.
    """
    return Pipeline.from_pretrained(name)


def pair_mismatch(expects_pairs: bool, fix: str, model: str = "this model") -> str:
    """Return the error message for pairs passed to a text model, or vice versa.

    Args:
        expects_pairs: Whether the model expects pairs.
        fix: How to fix it, as a sentence.
        model: Name of the model.
    """
    kinds = ("pairs of texts", "single texts")
    expected, actual = kinds if expects_pairs else reversed(kinds)
    return f"{model} expects {expected}, got {actual}. {fix}"


def _check(texts: Sequence[str], pairs: Sequence[str] | None, is_pair: bool) -> None:
    if is_pair and pairs is None:
        raise ValueError(pair_mismatch(True, "Pass the second texts as pairs."))
    if not is_pair and pairs is not None:
        raise ValueError(pair_mismatch(False, "Remove the argument pairs."))
    if isinstance(pairs, str):
        raise ValueError("pairs must be a list if texts is one, got a string.")
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(
            f"pairs must be as long as texts ({len(texts)}), got {len(pairs)}."
        )
    for name, values in (("text", texts), ("pair", () if pairs is None else pairs)):
        for row, text in enumerate(values):
            if not isinstance(text, str):
                raise ValueError(f"{name} {row} must be a string, got {type(text)}.")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"{name} {row} is not valid Unicode: {error}"
                ) from error


def load_all(folders: Sequence[str | Path]) -> list[Pipeline]:
    """Load several models and give them unique names; see `short_names`."""
    pipelines = [load(folder) for folder in folders]
    for pipeline, name in zip(pipelines, short_names(folders), strict=True):
        pipeline.name = name
    return pipelines
