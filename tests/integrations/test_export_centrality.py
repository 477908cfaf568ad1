"""The exported solver alone: against exact arithmetic, on easy and on hard graphs."""

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
    """Return what runs the function of ONNX on edges and a mask."""
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


def relative_error(found, edges):
    wanted = np.stack([stationary_in_80_digits(graph) for graph in edges])
    return (np.abs(found - wanted) / wanted).max()


@pytest.mark.parametrize("std", [1, 3, 8])
@pytest.mark.parametrize("words", [1, 2, 30])
def test_every_weight_is_right_to_float32(solve, std, words):
    edges = softmax_edges(2, words, words, std=std).float().numpy()
    assert relative_error(solve(edges), edges.astype(np.float64)) < 2e-7


def test_parts_that_hardly_meet_are_weighed_right(solve):
    edges = nearly_decomposable(3, 4, 1e-12)[None].astype(np.float32)
    assert relative_error(solve(edges), edges.astype(np.float64)) < 2e-7


def test_padding_is_left_out_and_a_text_may_have_no_words(solve):
    edges = softmax_edges(4, 9, 9, std=2).float()
    mask = torch.arange(9) < torch.tensor([9, 0, 1, 5]).unsqueeze(1)
    found = solve(edges.numpy(), mask.numpy())
    np.testing.assert_allclose(found, stationary_distribution(edges, mask), rtol=1e-5)
    assert (found[~mask.numpy()] == 0).all()


def test_edges_that_vanished_count_as_weak_ones(solve):
    edges = torch.eye(3)[[1, 0, 2]].unsqueeze(0)  # the third word knows only itself
    np.testing.assert_allclose(
        solve(edges.numpy()), stationary_distribution(edges), atol=1e-6
    )
