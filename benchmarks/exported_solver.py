"""How accurate is centrality in an exported model?

This benchmark measures the largest relative error of a weight, compared with
`perron.stationary_distribution` in float64, for each method that can be exported. The
graphs are 32 texts of 20 words whose scores are normal with standard deviation 1, 3 and
8, and two groups of ten words that are almost disconnected (edges of 1e-6). The
methods, all on float32 edges, are:

    GTH       elimination in an ONNX loop, in double precision; this is what is exported
    squaring  A to the power of 1024 by ten products, normalizing the columns after each
    power     200 steps of power iteration

    python benchmarks/exported_solver.py [--json FILE]
"""

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

import perron
from perron.integrations.export.operators import DOMAIN, functions
from timing import Report

TEXTS, WORDS = 32, 20


def gth(edges: Tensor) -> Tensor:
    """Run the function that `perron export` writes."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("stationary", ["edges", "mask"], ["weights"], domain=DOMAIN)],
        "solver",
        [
            info("edges", TensorProto.FLOAT, ["b", "n", "n"]),
            info("mask", TensorProto.BOOL, ["b", "n"]),
        ],
        [info("weights", TensorProto.FLOAT, ["b", "n"])],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(
        graph, functions=functions(20), opset_imports=opsets, ir_version=10
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    mask = np.ones(edges.shape[:2], bool)
    weights = session.run(None, {"edges": edges.numpy(), "mask": mask})[0]
    return torch.from_numpy(weights)


def squaring(edges: Tensor) -> Tensor:
    """Return a column of A^1024."""
    for _ in range(10):
        edges = edges @ edges
        edges = edges / edges.sum(-2, keepdim=True)
    return edges[..., 0]


def power(edges: Tensor) -> Tensor:
    """Return the result of 200 steps from equal weights."""
    x = edges.new_full((*edges.shape[:-1], 1), 1 / edges.shape[-1])
    for _ in range(200):
        x = edges @ x
    return (x / x.sum(-2, keepdim=True)).squeeze(-1)


def graphs() -> dict[str, Tensor]:
    """Return float32 edges by name."""
    rng = torch.Generator().manual_seed(0)
    scores = torch.randn(TEXTS, WORDS, WORDS, generator=rng)
    named = {f"std {std}": (std * scores).softmax(-2) for std in (1, 3, 8)}
    half = WORDS // 2
    group = torch.arange(WORDS) // half
    edges = scores.softmax(-2) * (group.unsqueeze(0) == group.unsqueeze(1)) + 1e-6
    return named | {"two groups": edges / edges.sum(-2, keepdim=True)}


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=0)
    rows = []
    for name, edges in graphs().items():
        expected = perron.stationary_distribution(edges.double())
        for method in (gth, squaring, power):
            error = ((method(edges).double() - expected) / expected).abs().max().item()
            label = "GTH" if method is gth else method.__name__
            rows.append({"graphs": name, "method": label, "weight error": error})
    columns = {"graphs": "", "method": "", "weight error": ".0e"}
    report.add("exported solvers", rows, columns)
    largest = max(row["weight error"] for row in rows if row["method"] == "GTH")
    report.finish([f"the relative error of a weight is at most {largest:.0e} with GTH"])


if __name__ == "__main__":
    main()
