"""Pipelines with small random models, and texts for them."""

import torch

from perron import Pipeline
from perron.text.encoding import TextProcessor
from perron.text.tokenizers import WordTokenizer
from perron_tests.models import small_model

WORDS = ["[UNK]", "a", "film", "good", "bad", "the", "it", "was", ".", "not", "n't"]
TEXTS = [
    "the film was good",
    "",
    "bad",
    "It was not a good film. It was a bad film, was it? The film was odd.",
    "   ",
    "it was n't bad . it was good",
    "good\n\nbad\nthe film",
    "a film a film a film a film a film a film a film",  # truncated to ten words
]
OTHERS = ["a film", "good", "", "It was bad.", "the", "was it", "", "the bad film"]


def small_pipeline(kind, aggregator="centrality", encoder="bilstm", **settings):
    torch.manual_seed(3)
    model = small_model(kind, aggregator, encoder, vocab_size=len(WORDS), **settings)
    with torch.no_grad():  # make texts differ by more than rounding errors
        model.head.layers[1].weight.mul_(8)
        model.head.layers[4].bias.zero_()
    words = WordTokenizer.from_words(WORDS, "lower")
    config = model.config
    return Pipeline(
        model, TextProcessor(words, kind, config.max_words, config.max_sentences)
    )


def arguments(pipeline, texts=TEXTS, pairs=OTHERS):
    """Return the texts, and the second texts for a pair model."""
    return (texts, pairs) if pipeline.processor.kind == "pair" else (texts,)
