"""Level and power of significance tests, measured by simulation.

Each row is a kind of study that compares two variants. The columns give the share of
simulated studies with p < 0.05 for several tests: without a true difference (level,
which should be 5 %), and with a true difference of two points (power).

    python benchmarks/significance.py [--studies 2000] [--only TEXT]
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import ndtr, ndtri, stdtr

from perron.experiments.significance import compare_accuracies

RESAMPLES = 300


@dataclass(frozen=True)
class Scenario:
    """A kind of study.

    Example i is classified correctly by run s of model v if the sum of these effects is
    positive: easiness of the example, its easiness for the model, quality of the run,
    preference of the run for the class of the example, noise, and a constant that
    determines the accuracy. Their standard deviations are relative to that of the
    noise. The defaults lead to deviations over seeds and agreement between runs like
    those of the records in papers/gong2019/results.

    Attributes:
        name: Name.
        seeds: Number of runs of the two models.
        examples: Number of test examples.
        accuracy: Expected accuracy.
        easiness: Standard deviation between examples.
        interaction: Standard deviation between examples of what one model finds easier
            than the other.
        quality: Standard deviation between runs.
        preference: Standard deviation between runs of the preference for each class.
        classes: Number of classes.
        scale: Factor of `quality` and `preference` for the second model.
        shared: Correlation of `quality` and `preference` between runs with the same
            seed.
    """

    name: str
    seeds: tuple[int, int]
    examples: int
    accuracy: float = 0.84
    easiness: float = 2.0
    interaction: float = 0.5
    quality: float = 0.06
    preference: float = 0.06
    classes: int = 2
    scale: float = 1.0
    shared: float = 0.0

    @property
    def deterministic(self) -> tuple[bool, bool]:
        """Whether each model is deterministic: the second one without seed effects."""
        return False, self.scale == 0


def simulate(
    scenario: Scenario, rng: np.random.Generator, difference: float = 0.0
) -> list[np.ndarray]:
    """Return whether each prediction is correct, (runs, examples) for each model.

    Args:
        scenario: Kind of study.
        rng: Random number generator.
        difference: True difference in expected accuracy.
    """
    n, most = scenario.examples, max(scenario.seeds)
    easiness = rng.normal(0, scenario.easiness, n)
    classes = rng.integers(scenario.classes, size=n)
    columns = 1 + scenario.classes  # quality and preferences
    common = rng.normal(size=(most, columns))
    models = []
    for model, runs in enumerate(scenario.seeds):
        scale = scenario.scale if model == 1 else 1.0
        own = rng.normal(size=(runs, columns))
        effects = np.sqrt(scenario.shared) * common[:runs]
        effects = scale * (effects + np.sqrt(1 - scenario.shared) * own)
        noise = 0.0 if scale == 0 else rng.normal(size=(runs, n))
        margin = easiness + rng.normal(0, scenario.interaction, n) + noise
        margin = margin + scenario.quality * effects[:, :1]
        margin = margin + scenario.preference * effects[:, 1 + classes]
        seed_variance = scale**2 * (scenario.quality**2 + scenario.preference**2)
        variance = scenario.easiness**2 + scenario.interaction**2 + seed_variance
        accuracy = scenario.accuracy + (difference if model == 0 else 0.0)
        constant = ndtri(accuracy) * np.sqrt(variance + (scale != 0))
        models.append(margin + constant > 0)
    return models


def perron_test(first: np.ndarray, second: np.ndarray, scenario: Scenario) -> float:
    """Return the p-value that `perron study` reports."""
    return compare_accuracies(
        first, second, deterministic=scenario.deterministic
    ).p_value


def examples_only(first: np.ndarray, second: np.ndarray, scenario: Scenario) -> float:
    """Pair by example and ignore seeds (approximates a permutation test)."""
    difference = first.mean(0) - second.mean(0)
    deviation = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(2 * ndtr(-abs(difference.mean()) / max(deviation, 1e-12)))


def seeds_only(first: np.ndarray, second: np.ndarray, scenario: Scenario) -> float:
    """Compare the accuracies of the runs with Welch's t-test and ignore examples."""
    means = [runs.mean(1) for runs in (first, second)]
    parts = [m.var(ddof=1) / len(m) if len(m) > 1 else 0.0 for m in means]
    variance = max(sum(parts), 1e-12)
    weighted = [
        part**2 / (len(m) - 1) for part, m in zip(parts, means, strict=True) if part
    ]
    df = variance**2 / max(sum(weighted), 1e-24)
    return float(2 * stdtr(df, -abs(means[0].mean() - means[1].mean()) / variance**0.5))


class Bootstrap:
    """Resample both seeds and examples; percentile p-value."""

    def __init__(self) -> None:
        """Prepare the weights, which are shared by all studies of a size."""
        self.rng = np.random.default_rng(0)
        self.weights: dict[int, np.ndarray] = {}

    def __call__(
        self, first: np.ndarray, second: np.ndarray, scenario: Scenario
    ) -> float:
        """Return the p-value."""
        weights = self._weights(first.shape[1])
        sums = 0.0
        for sign, runs in ((1, first), (-1, second)):
            per_run = weights @ runs.T.astype(np.float32)  # (resamples, runs)
            sums = sums + sign * (per_run * self._weights(len(runs))).sum(1)
        below, above = (sums <= 0).mean(), (sums >= 0).mean()
        return float(min(1.0, 2 * min(below, above)))

    def _weights(self, size: int) -> np.ndarray:
        if size not in self.weights:
            counts = self.rng.multinomial(size, np.full(size, 1 / size), RESAMPLES)
            self.weights[size] = (counts / size).astype(np.float32)
        return self.weights[size]


PValue = Callable[[np.ndarray, np.ndarray, Scenario], float]
TESTS: dict[str, PValue] = {
    "Perron": perron_test,
    "bootstrap": Bootstrap(),
    "seeds only": seeds_only,
    "examples only": examples_only,
}
SIZES = ((2, 300), (2, 2000), (3, 300), (3, 2000), (5, 1000), (10, 1000))
SCENARIOS = [
    *(Scenario("typical", (s, s), n) for s, n in SIZES),
    *(
        Scenario("large seed effects", (s, s), n, quality=0.15, preference=0.15)
        for s, n in SIZES
    ),
    *(
        Scenario("no seed effects", (s, s), n, quality=0.0, preference=0.0)
        for s, n in SIZES
    ),
    *(Scenario("unlike methods", (s, s), n, interaction=1.5) for s, n in SIZES),
    Scenario("unequal seeds", (5, 2), 2000),
    Scenario("unequal seeds", (5, 3), 1000),
    Scenario("unequal seeds", (3, 10), 1000),
    Scenario("deviations 1:3", (3, 3), 2000, scale=3.0),
    Scenario("deviations 1:3", (5, 5), 1000, scale=3.0),
    Scenario("deviations 1:3", (5, 3), 1000, scale=3.0),
    Scenario("correlated seeds", (3, 3), 2000, quality=0.15, shared=0.6),
    Scenario("correlated seeds", (5, 5), 1000, quality=0.15, shared=0.6),
    *(
        Scenario("against baseline", (s, 1), 2000, interaction=1.5, scale=0.0)
        for s in (2, 3, 5, 10)
    ),
    *(
        Scenario(
            *("baseline, large", (s, 1), 2000),
            interaction=1.5,
            quality=0.15,
            preference=0.15,
            scale=0.0,
        )
        for s in (2, 3, 5)
    ),
]


def rejection_rates(
    scenario: Scenario,
    studies: int,
    difference: float = 0.0,
    tests: dict[str, PValue] = TESTS,
    seed: int = 0,
) -> dict[str, float]:
    """Return the share of simulated studies with p < 0.05, for each test."""
    rng = np.random.default_rng(seed)
    counts = dict.fromkeys(tests, 0)
    for _ in range(studies):
        first, second = simulate(scenario, rng, difference)
        for name, test in tests.items():
            counts[name] += test(first, second, scenario) < 0.05
    return {name: count / studies for name, count in counts.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=2000, help="number per row")
    parser.add_argument("--only", default="", help="run rows whose name contains this")
    parser.add_argument("--quick", action="store_true", help="run only a few studies")
    options = parser.parse_args()
    studies = 20 if options.quick else options.studies
    chosen = [s for s in SCENARIOS if options.only in s.name]
    begin = time.perf_counter()
    table = Table(
        *("studies", "seeds", "texts", "± seeds"),
        *TESTS,
        title=f"p < 0.05 in {studies:,} simulated studies each, in percent: without a "
        "true difference / with two points",
    )
    for scenario in chosen[:1] if options.quick else chosen:
        level = rejection_rates(scenario, studies)
        power = rejection_rates(scenario, studies, 0.02)
        table.add_row(
            scenario.name,
            " ".join(map(str, scenario.seeds)),
            f"{scenario.examples:,}",
            f"{100 * seed_deviation(scenario):.1f}",
            *(f"{100 * level[name]:.1f} / {100 * power[name]:.0f}" for name in TESTS),
        )
    Console(width=120).print(table)
    print(f"{time.perf_counter() - begin:.0f} s")


def seed_deviation(scenario: Scenario) -> float:
    """Return the typical standard deviation of the first model's accuracy."""
    rng = np.random.default_rng(0)
    runs = [simulate(scenario, rng)[0].mean(1) for _ in range(100)]
    return float(np.sqrt(np.mean([each.var(ddof=1) for each in runs])))


if __name__ == "__main__":
    main()
