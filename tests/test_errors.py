"""Refusals that the shape checker of the test run would forestall."""

import subprocess
import sys

CASES = {
    "MeanPool(2)([[1.0, 2.0]])": (
        "states must be a tensor, but came as <class 'list'>"
    ),
    "MeanPool(2)(torch.ones(1, 1, 2), [[True]])": (
        "mask must be a tensor, but came as <class 'list'>"
    ),
    "MeanPool(2)(torch.ones(1, 2), lengths=[None])": (
        "lengths must be whole numbers, but came as [None]"
    ),
    "GraphCentralityPool(2, -1)(torch.ones(1, 1, 2), [[1.0]])": (
        "graph must be a tensor, but came as <class 'list'>"
    ),
    "stationary(torch.rand(3, 3), norm='max')": (
        'norm must be "sum" or "l2", but came as \'max\''
    ),
    "power_method(torch.rand(3, 3), gradient='exact')": (
        'gradient must be one of "unrolled", "truncated", "reverse", '
        "but came as 'exact'"
    ),
    "CentralityPool(4, connectivity='mpl')": (
        'connectivity must be one of "mlp", "bilinear", "query", "low_rank", '
        "but came as 'mpl'"
    ),
    "CentralityPool(4, solver='power')": (
        "solver must be \"direct\" or PowerSettings(...), but came as 'power'"
    ),
    "CentralityPool(4, activation='gelu')": (
        'activation must be "tanh" or "relu", but came as \'gelu\''
    ),
    "CentralityPool(4, norm='max')": 'norm must be "sum" or "l2", but came as \'max\'',
    "CentralityPool(4, heads=0)": (
        "hidden, heads and rank must be at least 1, but came as 50, 0 and 32"
    ),
    "PowerSettings(gradient='exact')": (
        'gradient must be one of "unrolled", "truncated", "reverse", '
        "but came as 'exact'"
    ),
    "PowerSettings(max_steps=0)": "max_steps must be at least 1, but came as 0",
    "MaxPool(0)": "dim must be at least 1, but came as 0",
    "SelfAttentionPool(4, queries=0)": "queries must be at least 1, but came as 0",
    "DynamicRoutingPool(4, capsules=0)": (
        "capsules and iterations must be at least 1, but came as 0 and 3"
    ),
}


def test_every_wrong_setting_is_refused_with_what_came_and_what_is_possible():
    code = "import torch\nfrom perron import *\n" + "".join(
        f"try:\n    {call}\n    print('accepted')\n"
        "except ValueError as error:\n    print(error)\n"
        for call in CASES
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.splitlines() == list(CASES.values()), run.stderr
