"""Error messages that the shape checker of the test run would preempt."""

import subprocess
import sys

from perron_tests.errors import assert_mentions

# Each message must contain the argument, the value passed, and the valid values.
CASES = {
    "MeanPool(2)([[1.0, 2.0]])": ("states", "list"),
    "MeanPool(2)(torch.ones(1, 1, 2), [[True]])": ("mask", "list"),
    "MeanPool(2)(torch.ones(1, 2), lengths=[None])": ("lengths", "[None]"),
    "MeanPool(2)(torch.ones(1, 1, 2), torch.tensor([[2]]))": ("mask", 2, 0, 1),
    "GraphCentralityPool(2)": ("dim", None, -1, -2, "attention"),
    "GraphCentralityPool(2, -1)(torch.ones(1, 1, 2), [[1.0]])": ("graph", "list"),
    "stationary_distribution(torch.rand(3, 3), norm='max')": (
        "norm",
        "'max'",
        '"sum"',
        '"l2"',
    ),
    "power_iteration(torch.rand(3, 3), gradient='exact')": (
        "gradient",
        "'exact'",
        "unrolled",
        "truncated",
        "reverse",
    ),
    "CentralityPool(4, connectivity='mpl')": (
        "connectivity",
        "'mpl'",
        "mlp",
        "bilinear",
        "query",
        "low_rank",
    ),
    "CentralityPool(4, connectivity=3)": ("connectivity", 3, '"mlp"'),
    "CentralityPool(4, solver='exact')": ("solver", "'exact'", '"direct"', '"power"'),
    "CentralityPool(4, activation='gelu')": (
        "activation",
        "'gelu'",
        '"tanh"',
        '"relu"',
    ),
    "CentralityPool(4, value='edges')": ("value", "'edges'", '"states"', '"incoming"'),
    "CentralityPool(4, norm='max')": ("norm", "'max'", '"sum"', '"l2"'),
    "CentralityPool(4, num_heads=0)": ("num_heads", 0, 1),
    "CentralityPool(4, hidden_dim='50')": ("hidden_dim", "an integer", "'50'"),
    "CentralityPool(4, edge_dropout='1')": ("edge_dropout", "a number", "'1'"),
    "CentralityPool(4, rank=8)": ("rank", 8, "'mlp'", '"low_rank"'),
    "CentralityPool(4, rank=8, connectivity=torch.nn.Identity())": (
        "rank",
        8,
        "'Identity'",
        '"low_rank"',
    ),
    "PowerIteration(gradient='exact')": ("gradient", "'exact'", '"reverse"'),
    "PowerIteration(max_iter=0)": ("max_iter", 0, 1),
    "MaxPool(0)": ("embed_dim", 0, 1),
    "SelfAttentionPool(4, num_queries=0)": ("num_queries", 0, 1),
    "DynamicRoutingPool(4, num_capsules=0)": ("num_capsules", 0, 1),
    "DynamicRoutingPool(4, capsule_dim=0)": ("capsule_dim", 0, 1),
}


def test_errors_name_the_argument_the_value_and_the_valid_values():
    code = "import torch\nfrom perron import *\n" + "".join(
        f"try:\n    {call}\n    print('accepted')\n"
        "except ValueError as error:\n    print(error)\n"
        for call in CASES
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = run.stdout.splitlines()
    assert len(lines) == len(CASES), run.stderr
    for line, parts in zip(lines, CASES.values(), strict=True):
        assert_mentions(line, *parts)
