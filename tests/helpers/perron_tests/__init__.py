"""Code shared by the tests: small models, texts, clients, references and scripts.

pytest puts this folder's parent on the path (pyproject.toml). A script that runs in a
process of its own gets it through `environment`.
"""

import os
from pathlib import Path

HELPERS = Path(__file__).parents[1]

# Set in the process that tests the Triton kernels; see `perron_tests.triton`.
TRITON_VARIABLE = "PERRON_TRITON_TESTS"
TRITON_DEVICE = os.environ.get(TRITON_VARIABLE, "")


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment, for a child that imports `perron_tests`."""
    found = os.environ.get("PYTHONPATH")
    path = f"{HELPERS}{os.pathsep}{found}" if found else str(HELPERS)
    return os.environ | {"PYTHONPATH": path} | variables
