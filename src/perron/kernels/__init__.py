"""Kernels on plain tensors, and the switch that selects them: see `use`."""

from perron.kernels.dispatch import (
    BACKENDS,
    OPERATIONS,
    Backend,
    Kernels,
    is_eager,
    select,
    select_for_graph,
    selected,
    use,
)

__all__ = [
    "BACKENDS",
    "OPERATIONS",
    "Backend",
    "Kernels",
    "is_eager",
    "select",
    "select_for_graph",
    "selected",
    "use",
]
