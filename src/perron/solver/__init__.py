"""Perron vectors: tensors in, tensors out."""

from perron.solver.direct import Norm, stationary
from perron.solver.power import (
    Gradient,
    PowerResult,
    SolverInfo,
    default_tolerance,
    power_method,
)

__all__ = [
    "Gradient",
    "Norm",
    "PowerResult",
    "SolverInfo",
    "default_tolerance",
    "power_method",
    "stationary",
]
