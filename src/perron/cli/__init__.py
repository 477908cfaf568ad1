"""The command `perron`."""

import os
import sys
from importlib import import_module


def main() -> None:
    """Run the command `perron`."""
    launch("perron.cli.app")


def launch(module: str) -> None:
    """Import a module and call its function ``run``; report a missing extra briefly."""
    try:
        _launch(module)
    except KeyboardInterrupt:  # perhaps while torch is imported
        sys.exit(130)


def _launch(module: str) -> None:
    # torch's threads spin while they wait for each other. On a machine that does
    # something else too that made an LSTM ten times slower; not to spin at all made it
    # twice as slow on a quiet one. So: a little. Read when torch is imported.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        import_module(module).run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        print(
            f"perron: {error.name} is missing; the commands need "
            "pip install 'perron[train]'",
            file=sys.stderr,
        )
        sys.exit(1)
