"""A trained model as plain data: JSON and safetensors, for pickles to carry."""

from typing import Any

import torch
from safetensors.torch import load, save
from tokenizers import Tokenizer

from perron.data.ids import WordIds
from perron.data.subwords import SubwordTokenizer
from perron.data.words import TextTokenizer, WordTokenizer
from perron.models import ModelConfig, build_model
from perron.models.settings import HuggingFaceSettings
from perron.pipeline import Pipeline


def packed(pipeline: Pipeline) -> dict[str, str | bytes]:
    """Return strings and bytes that `unpacked` makes the same pipeline of."""
    model = pipeline.model
    tensors = {
        name: tensor.detach().cpu().contiguous()
        for name, tensor in model.state_dict().items()
    }
    return {
        "name": pipeline.name,
        "config": model.config.model_dump_json(),
        "tokenizer": pipeline.word_ids.tokenizer.to_json(),
        "weights": save(tensors),
    }


def unpacked(state: dict[str, Any]) -> Pipeline:
    """Make a pipeline, on the CPU; nothing in the state is run as code."""
    config = ModelConfig.model_validate_json(state["config"])
    raw = Tokenizer.from_str(state["tokenizer"])
    encoder = config.settings.encoder
    tokenizer: TextTokenizer = (
        SubwordTokenizer(raw, encoder.marks)
        if isinstance(encoder, HuggingFaceSettings)
        else WordTokenizer(raw)
    )
    # The random weights that are replaced at once leave torch's numbers as they were.
    with torch.random.fork_rng(devices=[]):
        model = build_model(config)
    model.load_state_dict(load(state["weights"]))
    kind = config.settings.kind
    word_ids = WordIds(tokenizer, kind, config.max_words, config.max_sentences)
    return Pipeline(model, word_ids, state["name"])
