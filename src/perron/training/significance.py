"""Is one model better than another, or was it luck?"""

import numpy as np
from jaxtyping import Bool


def paired_p_value(
    first: Bool[np.ndarray, "seeds n"],
    second: Bool[np.ndarray, "seeds n"],
    draws: int = 9999,
    seed: int = 0,
) -> float:
    """Return how often a difference in accuracy as large as this comes by chance.

    A permutation test, two-sided, paired by test example: of each example the models'
    answers (their share of right ones over the seeds) change places with probability
    one half. It says whether the difference would hold on other texts; that it would
    hold for other seeds shows in the standard deviation beside it.

    Args:
        first: whether each answer was right, for each seed.
        second: the same examples and as many seeds of the other model.
        draws: of random exchanges.
        seed: of the draws.
    """
    difference = first.mean(0) - second.mean(0)
    moved = difference[difference != 0]  # where both are alike nothing changes
    observed = abs(moved.sum())
    chance = np.random.default_rng(seed)
    as_large = 0
    for _ in range(draws):
        signs = chance.integers(0, 2, len(moved)) * 2 - 1
        as_large += abs((signs * moved).sum()) >= observed - 1e-9
    return float((as_large + 1) / (draws + 1))
