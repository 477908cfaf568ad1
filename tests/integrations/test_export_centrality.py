"""The exported solver on its own, against arithmetic with 80 digits."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from perron_tests.graphs import softmax_edges
from perron_tests.reference import nearly_decomposable, stationary_in_80_digits

from perron import stationary_distribution
from perron.integrations.export.operators import DOMAIN, functions


@pytest.fixture(scope="module")
def solve():
    """Return a function that runs the ONNX solver on edges and a mask."""
    node = helper.make_node("stationary", ["edges", "mask"], ["weights"], domain=DOMAIN)
    edges = helper.make_tensor_value_info("edges", TensorProto.FLOAT, ["b", "n", "n"])
    mask = helper.make_tensor_value_info("mask", TensorProto.BOOL, ["b", "n"])
    weights = helper.make_tensor_value_info("weights", TensorProto.FLOAT, ["b", "n"])
    model = helper.make_model(
        helper.make_graph([node], "solver", [edges, mask], [weights]),
        functions=functions(20),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)],
        ir_version=10,
    )
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())

    def run(edges, mask=None):
        mask = np.ones(edges.shape[:2], bool) if mask is None else mask
        return session.run(None, {"edges": edges, "mask": mask})[0]

    return run


def relative_error(actual, edges):
    expected = np.stack([stationary_in_80_digits(graph) for graph in edges])
    return (np.abs(actual - expected) / expected).max()


@pytest.mark.parametrize("std", [1, 3, 8])
@pytest.mark.parametrize("words", [1, 2, 30])
def test_every_weight_has_float32_accuracy(solve, std, words):
    edges = softmax_edges(2, words, words, std=std).float().numpy()
    assert relative_error(solve(edges), edges.astype(np.float64)) < 2e-7


def test_nearly_disconnected_graphs_have_float32_accuracy(solve):
    edges = nearly_decomposable(3, 4, 1e-12)[None].astype(np.float32)
    assert relative_error(solve(edges), edges.astype(np.float64)) < 2e-7


def test_padding_has_zero_weight_and_a_text_may_be_empty(solve):
    edges = softmax_edges(4, 9, 9, std=2).float()
    mask = torch.arange(9) < torch.tensor([9, 0, 1, 5]).unsqueeze(1)
    weights = solve(edges.numpy(), mask.numpy())
    np.testing.assert_allclose(weights, stationary_distribution(edges, mask), rtol=1e-5)
    assert (weights[~mask.numpy()] == 0).all()


def test_zero_edges_count_as_very_weak_edges(solve):
    edges = torch.eye(3)[[1, 0, 2]].unsqueeze(0)  # the third word has only a self-loop
    np.testing.assert_allclose(
        solve(edges.numpy()), stationary_distribution(edges), atol=1e-6
    )
