import xml.etree.ElementTree as ET

import numpy as np
import pytest
import torch
from perron_tests.reference import stationary_by_eig

from papers.gong2019 import convergence as module
from papers.gong2019.convergence import COLUMNS, convergence, count_steps
from papers.gong2019.tests.small_data import TINY, write_sst
from papers.gong2019.workspace import Workspace
from perron.training.prepare import held_out_examples


@pytest.fixture(scope="module")
def artifact(small_workspace):
    return convergence(small_workspace)


@pytest.fixture
def graphs(small_workspace):
    pipeline, trial, _ = small_workspace.model("sst2", "centrality")
    folder = small_workspace.out / "runs" / "sst2" / trial.folder
    dev = held_out_examples(pipeline, folder, "dev", small_workspace.root)
    return dev, list(module.graphs_of(pipeline.model, dev))


def sharp_graph(n: int, seed: int) -> torch.Tensor:
    """A left-stochastic graph whose power method needs more than a few steps."""
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
    for *way, steps, texts, converged in artifact.rows[1:]:
        assert 1 <= int(steps) <= 200
        assert 0 <= int(converged) <= int(texts)
        counts[tuple(way)] = counts.get(tuple(way), 0) + int(texts)
    assert counts == {
        ("float32", "the paper's", "1e-10"): len(dev),
        ("float32", "its own", "1e-06"): len(dev),
        ("float64", "the paper's", "1e-10"): len(dev),
        ("float64", "its own", "1e-10"): len(dev),
    }


def test_steps_and_errors_are_those_of_the_algorithm():
    lengths = (6, 3)
    edges, mask = torch.zeros(2, 6, 6), torch.zeros(2, 6, dtype=torch.bool)
    for row, n in enumerate(lengths):
        edges[row, :n, :n] = sharp_graph(n, seed=row)
        mask[row, :n] = True
    *_, of = count_steps([(edges, mask)])
    want_steps, largest = [], 0.0
    for row, n in enumerate(lengths):
        matrix = edges[row, :n, :n].double().numpy()
        matrix = matrix / matrix.sum(0)
        steps, y = 0, np.ones(n)
        while True:  # the paper's Algorithm 1, one text
            steps += 1
            alpha = y / np.linalg.norm(y)
            y = matrix @ alpha
            theta = alpha @ y
            if np.linalg.norm(y - theta * alpha) <= 1e-10 * theta:
                break
        want_steps.append(steps)
        error = abs(alpha / alpha.sum() - stationary_by_eig(matrix)).max()
        largest = max(largest, error)
    assert of.steps.tolist() == want_steps
    assert min(want_steps) > 3
    assert of.converged.all()
    assert of.error == pytest.approx(largest, rel=1e-2)
    assert of.error < 1e-8


def test_float32_burns_all_steps_at_the_papers_tolerance():
    edges = torch.stack([sharp_graph(9, seed) for seed in range(20)])
    mask = torch.ones(20, 9, dtype=torch.bool)
    paper, own, double, _ = count_steps([(edges, mask)])
    assert paper.burnt > 0.2
    assert own.burnt == double.burnt == 0.0
    assert own.converged.all()
    assert double.converged.all()
    assert own.error < 1e-4
    assert np.median(own.steps) < np.median(double.steps) < np.median(paper.steps)
    told = module._meaning([paper, own, double, double])
    assert f"{100 * paper.burnt:.1f} % burn all 200 steps" in told


def test_a_graph_that_never_ends_counts_as_burnt():
    # Two words that hand all over to each other, but for a little: |λ₂| is nearly 1.
    weak = torch.tensor([[[1e-4, 0.9998], [0.9999, 2e-4]]])
    *_, of = count_steps([(weak, torch.ones(1, 2, dtype=torch.bool))])
    assert of.burnt == 1.0
    assert of.steps.tolist() == [200]
    assert not of.converged.any()


def test_the_picture_has_four_histograms(artifact):
    root = ET.fromstring(artifact.pictures["convergence.svg"])
    text = "\n".join("".join(node.itertext()) for node in root.iter())
    for name in ("float32, the paper's ε = 1e-10", "float32, its own ε = 1e-06"):
        assert name in text
    assert artifact.pictures["convergence.png"].startswith(b"\x89PNG")


def test_bars_show_every_graph():
    edges = torch.stack([sharp_graph(5, seed) for seed in range(8)])
    found = count_steps([(edges, torch.ones(8, 5, dtype=torch.bool))])
    for axes in module.draw_steps(found).axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)


def test_a_second_call_gives_the_same(artifact, small_workspace):
    assert convergence(small_workspace) == artifact


def test_without_data_it_says_what_is_missing(no_data):
    artifact = convergence(no_data)
    assert "the Stanford Sentiment Treebank" in artifact.text
    assert [tuple(row) for row in artifact.rows] == [COLUMNS]
    assert not artifact.pictures


def test_a_model_whose_data_are_gone_says_so(tmp_path):
    root = tmp_path / "data"
    write_sst(root)
    workspace = Workspace(tmp_path / "out", root, TINY)
    assert convergence(workspace).pictures
    (root / "sst" / "trees" / "dev.txt").unlink()
    artifact = convergence(workspace)
    assert "the Stanford Sentiment Treebank" in artifact.text
    assert not artifact.pictures
