"""Significance of a difference in accuracy, over seeds and test examples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from scipy.special import bdtr, stdtr, stdtrit


@dataclass(frozen=True)
class Comparison:
    """Difference in accuracy between two models; see `compare_accuracies`.

    Attributes:
        difference: Mean accuracy of the first model minus that of the second.
        standard_error: Standard error of the difference.
        degrees_of_freedom: Degrees of freedom of the t-distribution.
        p_value: Two-sided p-value of the difference.
        covers_seeds: Whether the p-value takes the variation between seeds into
            account. If False, it holds only for the trained models at hand. Nothing is
            known about other seeds.
    """

    difference: float
    standard_error: float
    degrees_of_freedom: float
    p_value: float
    covers_seeds: bool

    def confidence_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the difference."""
        half = -self.standard_error * float(
            stdtrit(self.degrees_of_freedom, (1 - level) / 2)
        )
        return self.difference - half, self.difference + half

    def non_inferiority_p_value(self, margin: float) -> float:
        """Test whether the first model is at most `margin` worse; return the p-value.

        The test is one-sided. The null hypothesis is that the first model is worse than
        the second by `margin` or more. A small p-value shows that it is not.

        Args:
            margin: Difference in accuracy that does not matter, such as 0.01 for one
                percentage point.
        """
        if not margin > 0:
            raise ValueError(f"margin must be positive, got {margin}.")
        statistic = (self.difference + margin) / self.standard_error
        return float(stdtr(self.degrees_of_freedom, -statistic))


class _SeedVariance(NamedTuple):
    """Variance of a difference in accuracy that is due to seeds.

    Attributes:
        variance: Variance, including the interaction of seeds and examples.
        noise: Variance that is due to this interaction.
        degrees_of_freedom: Degrees of freedom of the variance, if all models vary
            equally between seeds.
    """

    variance: float
    noise: float
    degrees_of_freedom: float


def compare_accuracies(
    first: Bool[np.ndarray, "runs n"],
    second: Bool[np.ndarray, "other_runs n"],
    *,
    deterministic: tuple[bool, bool] = (False, False),
) -> Comparison:
    r"""Test whether two models differ in accuracy, for other seeds and other texts.

    Seeds and examples are crossed random effects. With the difference d_i between the
    mean correctness of example i in the runs of the first and the second model, and the
    accuracies a_vs of run s of model v, the difference of the means has the variance

        V_examples = var(d_i) / n       variation between examples
        V_seeds    = Σ_v var(a_vs)/S_v  variation between the S_v runs of each model
        V_noise    = part of both that is due to the interaction of seeds and examples
        V          = V_examples + max(0, V_seeds - V_noise)

    The difference divided by √V is compared to a t-distribution with Satterthwaite's
    degrees of freedom,

        1/df = share² / ν + (1 - share)² / (n - 1),  share = min(1, V_seeds / V)

    where ν is the number of degrees of freedom of V_seeds, S_1 + S_2 - 2 if S_1 = S_2.
    ``benchmarks/significance.py`` checks the test by simulation and compares it to
    others.

    Runs of different models are treated as independent. If they are correlated, because
    a seed also determines the order of the data, the test is conservative.

    A model with a single run is assumed to vary as much between seeds as the other
    model. If both have a single run, nothing is known about seeds, and the test is
    McNemar's exact test.

    Args:
        first: Whether each prediction of the first model is correct, per run.
        second: The same for the second model, on the same examples.
        deterministic: Whether each model is deterministic, so that a single run does
            not differ from runs with other seeds.
    """
    n = first.shape[1]
    if not (len(first) and len(second) and n):
        raise ValueError(
            "first and second must have at least one run and one example, got shapes "
            f"{first.shape} and {second.shape}."
        )
    differences = first.mean(0) - second.mean(0)
    difference = float(differences.mean())
    num_different = np.count_nonzero(differences)
    # Following Agresti and Min (2005), add half an example that only the first model
    # classifies correctly and half an example that only the second does. The variance
    # is then positive even if all predictions are the same.
    squares = float(((differences - difference) ** 2).sum()) + 1
    examples = squares / (n * max(n - 1, 1))
    seeds = _seed_variance(
        [
            runs
            for runs, is_fixed in zip((first, second), deterministic, strict=True)
            if not is_fixed
        ]
    )
    variance, share = examples, 0.0
    if seeds is not None:
        variance += max(0.0, seeds.variance - seeds.noise)
        share = min(1.0, seeds.variance / variance)
    df = _degrees_of_freedom(share, seeds, n)
    if len(first) == len(second) == 1:
        wins = np.count_nonzero(differences > 0)
        p_value = 2 * bdtr(min(wins, num_different - wins), num_different, 0.5)
    else:
        p_value = 2 * stdtr(df, -abs(difference) / math.sqrt(variance))
    # No permutation test that swaps the models' predictions can give a smaller value.
    smallest = 2.0 ** (1 - num_different)
    return Comparison(
        difference=difference,
        standard_error=math.sqrt(variance),
        degrees_of_freedom=df,
        p_value=float(np.clip(p_value, min(smallest, 1.0), 1.0)),
        covers_seeds=seeds is not None,
    )


def _degrees_of_freedom(share: float, seeds: _SeedVariance | None, n: int) -> float:
    """Return the degrees of freedom of the variance of a difference."""
    if seeds is None or share == 0:
        return float(max(n - 1, 1))
    # Two seeds and a deterministic model have only one degree of freedom. With squared
    # shares, 9.8 % of simulated studies with large seed effects were significant
    # without a difference, and 7.2 % otherwise.
    exponent = 2 if seeds.degrees_of_freedom > 1.5 else 1
    inverse = share**exponent / seeds.degrees_of_freedom
    return 1 / (inverse + (1 - share) ** exponent / max(n - 1, 1))


def _seed_variance(
    models: Sequence[Bool[np.ndarray, "_ n"]],
) -> _SeedVariance | None:
    """Return the variance due to the seeds of some models; None if it is unknown."""
    repeated = [runs for runs in models if len(runs) > 1]
    if models and not repeated:
        return None
    # A single run is taken to vary like the runs of the other model.
    borrowed = sum(1.0 for runs in models if len(runs) == 1)
    variance = noise = total = squares = 0.0
    for runs in repeated:
        count, n = runs.shape
        weight = 1 / count + borrowed
        accuracies, rates = runs.mean(1), runs.mean(0)
        between = float(((accuracies - accuracies.mean()) ** 2).sum())
        within = count * float((rates * (1 - rates)).sum())
        residual = (within - n * between) / max(n - 1, 1)
        variance += weight * between / (count - 1)
        noise += weight * residual / ((count - 1) * n)
        total += weight
        squares += weight**2 / (count - 1)
    return _SeedVariance(variance, noise, total**2 / squares if squares else math.inf)
