"""Scripts that tests run in a process of their own.

The shape checker of the test run wraps every function of the package, and torch.compile
cannot look through it: what is to be compiled must come from an interpreter without it.
"""

import subprocess
import sys
from pathlib import Path

from perron_tests import environment


def run_plain(script: str, *arguments: str, **variables: str) -> str:
    """Run a script of this folder; return what it printed, fail if it failed.

    ``variables`` are added to its environment.
    """
    path = Path(__file__).with_name(script)
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", path, *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
