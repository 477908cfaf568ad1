"""Scripts that tests run in a separate process.

The shape checker of the test run wraps every function of the package, and torch.compile
cannot trace through it. Scripts that compile code run in an interpreter without it.
"""

import subprocess
import sys
from pathlib import Path

from perron_tests import environment


def run_plain(script: str, *arguments: str, **variables: str) -> str:
    """Run a script in this folder, and return its output.

    Args:
        script: File name of the script.
        arguments: Arguments of the script.
        variables: Additional environment variables.
    """
    path = Path(__file__).with_name(script)
    process = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", path, *arguments],
        env=environment(**variables),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout
