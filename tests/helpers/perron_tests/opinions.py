"""A tiny sentiment dataset, and classifier settings that learn it quickly."""

import random

from perron_tests.training import BAD, GOOD, NEUTRAL

QUICK = {
    "encoder": "none",
    "hidden_dim": 8,
    "embedding_dim": 8,
    "dropout": 0.1,
    "learning_rate": 0.1,
    "batch_size": 20,
    "max_iter": 8,
    "random_state": 0,
}


def opinions(rows: int = 80, seed: int = 0) -> tuple[list[str], list[str]]:
    """Return texts and their labels, alternately "bad" and "good".

    A single word of each text determines its label.
    """
    rng = random.Random(seed)
    texts = []
    for row in range(rows):
        words = rng.choices(NEUTRAL, k=rng.randint(0, 9))
        words.insert(rng.randint(0, len(words)), rng.choice([BAD, GOOD][row % 2]))
        texts.append(" ".join(words))
    return texts, ["bad", "good"] * (rows // 2)
