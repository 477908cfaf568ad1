"""The command `perron`."""

import os
import sys


def main() -> None:
    """Run the command line; a missing extra is said in one line."""
    # Threads that wait for each other without spinning: on a machine that does
    # something else too, spinning threads made an LSTM ten times slower. Has to be set
    # before torch is imported, and is left alone if the user set it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from perron.cli.app import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        print(
            f"perron: {error.name} is missing; the commands need "
            "pip install 'perron[train]'",
            file=sys.stderr,
        )
        sys.exit(1)
    run()
