"""The model that `fit` begins with: a new one for the texts, or one that is there."""

from collections.abc import Sequence
from itertools import islice

import torch

from perron.data.ids import WordIds
from perron.data.lexicon import choose_lexicon
from perron.data.vocabulary import count_words
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
    lexicon = choose_lexicon(counts, text, parameters.sources)
    config = ModelConfig(
        settings=parameters.model(lexicon.width),
        vocabulary=len(lexicon.words),
        labels=tuple(labels),
        max_words=text.max_words,
    )
    model = build_model(config)
    if lexicon.sources:
        model.embedding.set_vectors(torch.from_numpy(lexicon.matrix(seed)))
    sizes = text.max_words, config.max_sentences
    return Pipeline(model, WordIds(lexicon.tokenizer, "text", *sizes))


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
