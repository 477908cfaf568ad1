"""Kernels on plain tensors, and the choice of their backend with `use`."""

from perron.kernels.dispatch import (
    BACKENDS,
    OPERATIONS,
    Backend,
    Kernels,
    compile_in_background,
    is_eager,
    select,
    select_for_graph,
    selected,
    use,
    wait_for_compiled,
)

__all__ = [
    "BACKENDS",
    "OPERATIONS",
    "Backend",
    "Kernels",
    "compile_in_background",
    "is_eager",
    "select",
    "select_for_graph",
    "selected",
    "use",
    "wait_for_compiled",
]
