"""How exact is centrality in an exported graph, by each way that can be exported?

The worst relative error of a weight, against `perron.stationary` in float64. Graphs are
32 texts of 20 words whose scores are normal with standard deviation 1, 3 and 8, and two
groups of ten words that hardly point at each other (edges of 1e-6). The ways,
all on float32 edges:

    GTH         elimination in an ONNX loop, double precision inside: what is exported
    squaring    A to the power 1024 by ten products, columns normalised after each
    power       200 steps of the power method

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
    found = session.run(None, {"edges": edges.numpy(), "mask": mask})[0]
    return torch.from_numpy(found)


def squaring(edges: Tensor) -> Tensor:
    """Return a column of A^1024."""
    for _ in range(10):
        edges = edges @ edges
        edges = edges / edges.sum(-2, keepdim=True)
    return edges[..., 0]


def power(edges: Tensor) -> Tensor:
    """Return where 200 steps lead from even weights."""
    x = edges.new_full((*edges.shape[:-1], 1), 1 / edges.shape[-1])
    for _ in range(200):
        x = edges @ x
    return (x / x.sum(-2, keepdim=True)).squeeze(-1)


def graphs() -> dict[str, Tensor]:
    """Return float32 edges by what they are like."""
    chance = torch.Generator().manual_seed(0)
    scores = torch.randn(TEXTS, WORDS, WORDS, generator=chance)
    found = {f"deviation {std}": (std * scores).softmax(-2) for std in (1, 3, 8)}
    half = WORDS // 2
    same = torch.arange(WORDS) // half
    apart = scores.softmax(-2) * (same.unsqueeze(0) == same.unsqueeze(1)) + 1e-6
    return found | {"two groups": apart / apart.sum(-2, keepdim=True)}


def main() -> None:
    """Compute and print."""
    report = Report(__doc__, budget=0)
    rows = []
    for name, edges in graphs().items():
        wanted = perron.stationary(edges.double())
        for way in (gth, squaring, power):
            error = ((way(edges).double() - wanted) / wanted).abs().max().item()
            label = "GTH" if way is gth else way.__name__
            rows.append({"graphs": name, "way": label, "entry": error})
    report.add("exported solvers", rows, {"graphs": "", "way": "", "entry": ".0e"})
    worst = max(row["entry"] for row in rows if row["way"] == "GTH")
    report.finish([f"GTH is never off by more than {worst:.0e} of a weight"])


if __name__ == "__main__":
    main()
