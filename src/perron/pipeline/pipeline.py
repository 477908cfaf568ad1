"""A trained model and its words together: texts in, labels and vectors out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from perron.data.batches import batches_in_order, inputs_of
from perron.data.ids import WordIds
from perron.data.words import WordTokenizer
from perron.errors import DataError
from perron.explain import Explanation, explain
from perron.files import make_folder, write_whole
from perron.models import Classifier, PairClassifier, load_model
from perron.pipeline.card import model_card

TOKENIZER = "tokenizer.json"
CARD = "README.md"
_CHUNK = 4096  # texts that are sorted by length together


class Pipeline:
    """Classifies texts as they are typed.

    Made by `perron.load`. A text is a string; a pair model takes two lists. An empty
    text is legal: it is classified like any other.
    """

    def __init__(
        self, model: Classifier, word_ids: WordIds, name: str = "model"
    ) -> None:
        self.model = model.eval()
        self.word_ids = word_ids
        self.name = name  # in records and in the viewer

    def __repr__(self) -> str:
        settings = self.model.config.settings
        return (
            f"Pipeline({settings.kind}, {settings.encoder.name}, "
            f"{settings.aggregator.name}; {', '.join(self.labels)})"
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, in the order of `predict_proba`'s columns."""
        return self.model.config.labels

    def predict(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 64,
    ) -> list[str]:
        """Return the most probable label of each text, or of each pair."""
        best = self.predict_proba(texts, pairs, batch_size).argmax(1)
        return [self.labels[row] for row in best]

    def predict_proba(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        batch_size: int = 64,
    ) -> np.ndarray:
        """Return the probability of each class, (texts, classes), float32."""
        _check(texts, pairs, self.word_ids.kind == "pair")

        def probabilities(inputs: dict[str, Tensor]) -> Tensor:
            return self.model(**inputs).logits.float().softmax(-1)

        return self._run(probabilities, texts, pairs, batch_size, len(self.labels))

    def encode(self, texts: Sequence[str], batch_size: int = 64) -> np.ndarray:
        """Return the pooled vector of each text, (texts, width), float32.

        A pair model encodes single texts too: it reads both sides alike.
        """
        _check(texts, None, False)
        model, word_ids = self.model, self.word_ids
        if isinstance(model, PairClassifier):
            single = replace(word_ids, kind="text")
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
        """Return the prediction for one text with its words, weights and edges."""
        _check([text], None if pair is None else [pair], self.word_ids.kind == "pair")
        return explain(self.model, self.word_ids, text, pair, self.name)

    def _run(
        self,
        compute: Callable[[dict[str, Tensor]], Tensor],
        texts: Sequence[str],
        pairs: Sequence[str] | None,
        batch_size: int,
        width: int,
        word_ids: WordIds | None = None,
    ) -> np.ndarray:
        """Compute a row for each text, in batches of texts of like length."""
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, but came as {batch_size}")
        device = next(self.model.parameters()).device
        results = np.empty((len(texts), width), np.float32)
        self.model.eval()
        for begin, rows in self._chunks(word_ids or self.word_ids, texts, pairs):
            sizes = np.array([sum(len(ids) for ids in row.values()) for row in rows])
            for part in batches_in_order(sizes, batch_size):
                inputs = inputs_of([rows[place] for place in part])
                moved = {name: tensor.to(device) for name, tensor in inputs.items()}
                with torch.inference_mode():
                    results[begin + part] = compute(moved).cpu().numpy()
        return results

    def _chunks(
        self, word_ids: WordIds, texts: Sequence[str], pairs: Sequence[str] | None
    ) -> Iterator[tuple[int, list[dict[str, list[int]]]]]:
        for begin in range(0, len(texts), _CHUNK):
            end = begin + _CHUNK
            second = None if pairs is None else pairs[begin:end]
            yield begin, word_ids.rows(texts[begin:end], second)

    def save_pretrained(
        self, folder: str | Path, facts: Mapping[str, object] | None = None
    ) -> None:
        """Write weights, words, a model card and, last, config.json.

        Args:
            folder: made if it is not there.
            facts: for the card, as a table: data, accuracy.
        """
        folder = Path(folder)
        make_folder(folder)
        write_whole(folder / TOKENIZER, self.word_ids.tokenizer.to_json().encode())
        write_whole(folder / CARD, model_card(self.model.config, facts or {}).encode())
        self.model.save_pretrained(folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Pipeline":
        """Read what `save_pretrained` wrote. Nothing in the folder is run as code."""
        model = load_model(folder)
        config = model.config
        path = Path(folder) / TOKENIZER
        tokenizer = WordTokenizer.load(path)
        words = len(tokenizer.words)
        if words != config.vocabulary:
            raise DataError(
                f"has {words} words, but the model has {config.vocabulary}: "
                "it belongs to another one",
                path,
            )
        word_ids = WordIds(
            tokenizer, config.settings.kind, config.max_words, config.max_sentences
        )
        return cls(model, word_ids, Path(folder).resolve().name)


def load(folder: str | Path) -> Pipeline:
    """Load a trained model: ``load("runs/demo").predict(["a fine film"])``."""
    return Pipeline.from_pretrained(folder)


def _check(texts: Sequence[str], pairs: Sequence[str] | None, is_pair: bool) -> None:
    if isinstance(texts, str) or isinstance(pairs, str):
        raise ValueError("texts must be a list of strings; for one text write [text]")
    if is_pair and pairs is None:
        raise ValueError("this model is for pairs: give the second texts as pairs=...")
    if not is_pair and pairs is not None:
        raise ValueError("this model is for single texts: leave out the pairs")
    if pairs is not None and len(pairs) != len(texts):
        raise ValueError(f"{len(texts)} texts, but {len(pairs)} pairs")
    for name, given in (("text", texts), ("pair", () if pairs is None else pairs)):
        for row, text in enumerate(given):
            if not isinstance(text, str):
                raise ValueError(
                    f"{name} {row} must be a string, but came as {type(text)}"
                )
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"{name} {row} is not Unicode: {error}") from error
