"""Solvers for the Perron vectors of batches of graphs."""

from perron.solver.direct import Norm, stationary_distribution
from perron.solver.power import (
    Gradient,
    PowerIterationResult,
    SolverInfo,
    default_tolerance,
    power_iteration,
)

__all__ = [
    "Gradient",
    "Norm",
    "PowerIterationResult",
    "SolverInfo",
    "default_tolerance",
    "power_iteration",
    "stationary_distribution",
]
