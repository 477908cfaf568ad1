"""Kernels on plain tensors, and the choice of their backend with `use`."""

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
