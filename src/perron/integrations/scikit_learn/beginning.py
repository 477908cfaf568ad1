"""The model that `fit` begins with: a new one for the texts, or one that is there."""

from collections.abc import Sequence
from itertools import islice

import torch

from perron.data.ids import WordIds
from perron.data.vectors import embedding_matrix, read_vectors, wanted_words
from perron.data.vocabulary import choose_vocabulary, count_words
from perron.data.words import UNKNOWN, WordTokenizer
from perron.integrations.scikit_learn.parameters import Parameters
from perron.models import ModelConfig, build_model
from perron.pipeline import Pipeline


def new_pipeline(
    parameters: Parameters, texts: Sequence[str], labels: Sequence[str], seed: int
) -> Pipeline:
    """Choose the vocabulary, read word vectors, and make a model with random weights.

    Takes torch's random numbers from where they are.
    """
    text = parameters.text
    parameters.model()  # refuses a wrong one before anything is read
    counts = count_words([texts], text.case)
    if parameters.max_vocabulary is not None:
        counts = dict(islice(counts.items(), parameters.max_vocabulary))
    wanted = wanted_words(choose_vocabulary(counts, text.min_count)) - {UNKNOWN}
    sources = [
        read_vectors(name, wanted, first=text.vector_words)
        for name in parameters.sources
    ]
    others = [word for table in sources for word in table.words[: text.vector_words]]
    if text.case == "lower":
        others = [word for word in others if word == word.lower()]
    vocabulary = choose_vocabulary(counts, text.min_count, others)
    width = sum(table.dim for table in sources) or None
    config = ModelConfig(
        settings=parameters.model(width),
        vocabulary=len(vocabulary),
        labels=tuple(labels),
        max_words=text.max_words,
    )
    model = build_model(config)
    if sources:
        matrix, _ = embedding_matrix(vocabulary, sources, seed=seed)
        model.embedding.set_vectors(torch.from_numpy(matrix))
    tokenizer = WordTokenizer.of_words(vocabulary, text.case)
    word_ids = WordIds(tokenizer, "text", text.max_words, config.max_sentences)
    return Pipeline(model, word_ids)


def check_same_model(pipeline: Pipeline, parameters: Parameters) -> None:
    """Refuse to go on with a model that the parameters no longer describe."""
    config = pipeline.model.config
    wanted = parameters.model(config.settings.embedding.dim)
    changed = [
        name
        for name in type(wanted).model_fields
        if getattr(wanted, name) != getattr(config.settings, name)
    ]
    if parameters.max_words != config.max_words:
        changed.append("max_words")
    if changed:
        raise ValueError(
            "warm_start goes on with the model as it is, but the parameters now ask "
            f"for another {changed[0]}: change them back, or set warm_start=False"
        )


def check_same_classes(pipeline: Pipeline, labels: Sequence[str]) -> None:
    """Refuse labels that a model does not have, or that lack some of its own."""
    if set(labels) != set(pipeline.labels):
        raise ValueError(
            "to go on with a model, y must have the same classes: it has "
            f"{', '.join(pipeline.labels)}; y has {', '.join(labels)}"
        )
