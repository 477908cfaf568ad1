"""Very small models, and ragged and padded batches for them."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from perron.models import Classifier, ModelConfig, build_model

KINDS = ("text", "document", "pair")
ENCODERS = {
    "none": "none",
    "bilstm": {"name": "bilstm", "hidden_dim": 3},
    "cnn": {"name": "cnn", "kernel_sizes": [2, 3], "num_filters": 3},
    "transformer": {
        "name": "transformer",
        "hidden_dim": 4,
        "num_layers": 1,
        "num_heads": 2,
    },
}
AGGREGATORS = {
    "max": "max",
    "mean": "mean",
    "first": "first",
    "self-attention": {"name": "self-attention", "num_queries": 2, "hidden_dim": 4},
    "intra-attention": {"name": "intra-attention", "hidden_dim": 4},
    "dynamic-routing": {"name": "dynamic-routing", "num_capsules": 2},
    "routing, reverse": {"name": "dynamic-routing", "num_capsules": 2, "reverse": True},
    "centrality": {"name": "centrality", "hidden_dim": 4},
    "centrality, l2": {
        "name": "centrality",
        "hidden_dim": 4,
        "num_heads": 2,
        "norm": "l2",
    },
    "centrality, bilinear": {
        "name": "centrality",
        "hidden_dim": 4,
        "connectivity": "bilinear",
    },
    "centrality, query": {
        "name": "centrality",
        "hidden_dim": 4,
        "connectivity": "query",
    },
    "centrality, low rank": {
        "name": "centrality",
        "connectivity": "low_rank",
        "rank": 3,
    },
}
VOCAB_SIZE = 12
LABELS = ("bad", "fair", "good")


def built_in(registry: Mapping[str, type]) -> set[str]:
    """Return the names of the components that are part of the package."""
    return {
        name
        for name, component in registry.items()
        if component.__module__.startswith("perron.")
    }


def small_config(
    kind: str,
    aggregator: str = "mean",
    encoder: str = "none",
    vocab_size: int = VOCAB_SIZE,
    **settings: object,
) -> ModelConfig:
    """Return the configuration of a model with 6 dimensions and three classes."""
    return ModelConfig(
        settings={
            "kind": kind,
            "embedding": {"embedding_dim": 6},
            "encoder": ENCODERS[encoder],
            "aggregator": AGGREGATORS[aggregator],
            "head": {"hidden_dim": 5},
            **settings,
        },
        vocab_size=vocab_size,
        labels=LABELS,
        max_words=10,
        max_sentences=4,
    )


def small_model(*arguments: str, **settings: object) -> Classifier:
    """Return a randomly initialized model in evaluation mode."""
    return build_model(small_config(*arguments, **settings)).eval()


def random_ids(lengths: list[int], seed: int = 0) -> Tensor:
    """Return the concatenated ids of random texts."""
    rng = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB_SIZE, (sum(lengths),), generator=rng)


def pad(ids: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Return padded ids and the mask; the padding has the id of a real word."""
    padded = pad_sequence(ids.split(lengths), batch_first=True, padding_value=7)
    mask = torch.arange(padded.shape[1]) < torch.tensor(lengths).unsqueeze(1)
    return padded, mask


def batches(kind: str) -> tuple[dict[str, object], dict[str, object]]:
    """Return a batch of four texts as ragged and padded arguments.

    The second text has no words. The second document has no sentences, and the third
    has a sentence with no words.
    """
    if kind == "document":
        lengths, sentences = [3, 5, 0, 1, 4], [2, 0, 2, 1]
        ids = random_ids(lengths)
        padded, mask = pad(ids, lengths)
        ragged = {"ids": ids, "lengths": torch.tensor(lengths), "sentences": sentences}
        return ragged, {"ids": padded, "mask": mask, "sentences": sentences}
    lengths = [4, 0, 1, 6]
    ids = random_ids(lengths)
    padded, mask = pad(ids, lengths)
    ragged = {"ids": ids, "lengths": lengths}
    padded_batch = {"ids": padded, "mask": mask}
    if kind == "pair":
        lengths = [2, 3, 0, 5]
        ids = random_ids(lengths, seed=1)
        padded, mask = pad(ids, lengths)
        ragged |= {"pair_ids": ids, "pair_lengths": torch.tensor(lengths)}
        padded_batch |= {"pair_ids": padded, "pair_mask": mask}
    return ragged, padded_batch
