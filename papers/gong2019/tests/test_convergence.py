import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from perron_tests.reference import stationary_by_eig

from papers.gong2019 import convergence as module
from papers.gong2019.convergence import COLUMNS, convergence, count_iterations
from papers.gong2019.tests.small_data import TINY, write_sst
from papers.gong2019.workspace import Workspace
from perron.training.prepare import load_run_examples


@pytest.fixture(scope="module")
def artifact(small_workspace):
    return convergence(small_workspace)


@pytest.fixture
def graphs(small_workspace):
    pipeline, trial, _ = small_workspace.model("sst2", "centrality")
    folder = small_workspace.out / "runs" / "sst2" / trial.folder_name
    dev = load_run_examples(pipeline, folder, "dev", small_workspace.root)
    return dev, list(module.word_graphs(pipeline.model, dev))


def slow_graph(n: int, seed: int) -> torch.Tensor:
    """Return a left-stochastic graph that needs more than a few iterations."""
    rng = torch.Generator().manual_seed(seed)
    return (1.5 * torch.randn(n, n, generator=rng)).softmax(0)


def test_every_dev_text_has_a_graph_whose_columns_sum_to_one(graphs):
    dev, batches = graphs
    masks = [row for _, mask in batches for row in mask]
    assert sorted(int(row.sum()) for row in masks) == sorted(dev.sizes.tolist())
    for edges, mask in batches:
        torch.testing.assert_close(edges.sum(-2), mask.float())


def test_counts_sum_to_the_number_of_dev_texts(artifact, graphs):
    dev, _ = graphs
    assert tuple(artifact.rows[0]) == COLUMNS
    counts: dict[tuple[str, ...], int] = {}
    for *key, iterations, texts, converged in artifact.rows[1:]:
        assert 1 <= int(iterations) <= 200
        assert 0 <= int(converged) <= int(texts)
        counts[tuple(key)] = counts.get(tuple(key), 0) + int(texts)
    assert counts == {
        ("float32", "paper", "1e-10"): len(dev),
        ("float32", "default", "1e-06"): len(dev),
        ("float64", "paper", "1e-10"): len(dev),
        ("float64", "default", "1e-10"): len(dev),
    }


def test_iterations_and_errors_match_the_papers_algorithm():
    lengths = (6, 3)
    edges, mask = torch.zeros(2, 6, 6), torch.zeros(2, 6, dtype=torch.bool)
    for row, n in enumerate(lengths):
        edges[row, :n, :n] = slow_graph(n, seed=row)
        mask[row, :n] = True
    *_, result = count_iterations([(edges, mask)])
    expected, largest = [], 0.0
    for row, n in enumerate(lengths):
        matrix = edges[row, :n, :n].double().numpy()
        matrix = matrix / matrix.sum(0)
        iterations, y = 0, np.ones(n)
        while True:  # the paper's Algorithm 1 for one text
            iterations += 1
            alpha = y / np.linalg.norm(y)
            y = matrix @ alpha
            theta = alpha @ y
            if np.linalg.norm(y - theta * alpha) <= 1e-10 * theta:
                break
        expected.append(iterations)
        error = abs(alpha / alpha.sum() - stationary_by_eig(matrix)).max()
        largest = max(largest, error)
    assert result.iterations.tolist() == expected
    assert min(expected) > 3
    assert result.converged.all()
    assert result.error == pytest.approx(largest, rel=1e-2)
    assert result.error < 1e-8


def test_float32_often_misses_the_papers_tolerance():
    edges = torch.stack([slow_graph(9, seed) for seed in range(20)])
    mask = torch.ones(20, 9, dtype=torch.bool)
    paper, default, double, _ = count_iterations([(edges, mask)])
    assert paper.unconverged > 0.2
    assert default.unconverged == double.unconverged == 0.0
    assert default.converged.all()
    assert double.converged.all()
    assert default.error < 1e-4
    medians = [np.median(r.iterations) for r in (default, double, paper)]
    assert medians[0] < medians[1] < medians[2]
    text = module._conclusion([paper, default, double, double])
    assert f"{100 * paper.unconverged:.1f} % use all 200 iterations" in text


def test_a_graph_that_never_converges_is_counted():
    # Two words that pass almost everything to each other, so |λ₂| is nearly 1.
    edges = torch.tensor([[[1e-4, 0.9998], [0.9999, 2e-4]]])
    *_, result = count_iterations([(edges, torch.ones(1, 2, dtype=torch.bool))])
    assert result.unconverged == 1.0
    assert result.iterations.tolist() == [200]
    assert not result.converged.any()


def test_the_figure_has_four_histograms(artifact):
    root = ET.fromstring(artifact.images["convergence.svg"])
    text = "\n".join("".join(node.itertext()) for node in root.iter())
    for name in ("float32, paper ε = 1e-10", "float32, default ε = 1e-06"):
        assert name in text
    assert artifact.images["convergence.png"].startswith(b"\x89PNG")


def test_the_bars_include_every_graph():
    edges = torch.stack([slow_graph(5, seed) for seed in range(8)])
    results = count_iterations([(edges, torch.ones(8, 5, dtype=torch.bool))])
    for axes in module.draw_histograms(results).axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)


def test_the_result_is_reproducible(artifact, small_workspace):
    assert convergence(small_workspace) == artifact


def test_missing_data_are_reported(no_data):
    artifact = convergence(no_data)
    assert "the Stanford Sentiment Treebank" in artifact.text
    assert [tuple(row) for row in artifact.rows] == [COLUMNS]
    assert not artifact.images


def test_missing_data_of_a_trained_model_are_reported(tmp_path):
    root = tmp_path / "data"
    write_sst(root)
    workspace = Workspace(tmp_path / "out", root, TINY)
    assert convergence(workspace).images
    (root / "sst" / "trees" / "dev.txt").unlink()
    artifact = convergence(workspace)
    assert "the Stanford Sentiment Treebank" in artifact.text
    assert not artifact.images
