"""The `perron` command."""

import os
import sys
from importlib import import_module


def main() -> None:
    """Run the `perron` command."""
    launch("perron.cli.app")


def launch(module: str) -> None:
    """Import a module and call its ``run`` function, reporting missing packages."""
    try:
        _launch(module)
    except KeyboardInterrupt:  # possibly while torch is imported
        sys.exit(130)


def _launch(module: str) -> None:
    # torch's threads spin while they wait for each other. On a busy machine, this made
    # an LSTM ten times slower. Without spinning, it was twice as slow on an idle
    # machine. A short spin is a compromise. torch reads the variable on import.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        import_module(module).run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        print(
            f"perron: the package {error.name} is not installed. Install it with: "
            "pip install 'perron[train]'",
            file=sys.stderr,
        )
        sys.exit(1)
