import threading
import xml.etree.ElementTree as ET
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from perron_tests.errors import mentions

from papers.gong2019 import figures
from papers.gong2019 import workspace as workspace_module
from papers.gong2019.figures import COLUMNS, figure1, graph
from papers.gong2019.tests.small_data import TINY
from papers.gong2019.workspace import Workspace
from perron.errors import PerronError
from perron.files import lock_folder

SVG = "{http://www.w3.org/2000/svg}"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
TEXTS = {
    "figure1": {"sentence": figures.SENTENCE},
    "graph": {"premise": figures.PREMISE, "hypothesis": figures.HYPOTHESIS},
}
STUDIES = {"figure1": "sst2", "graph": "snli"}


@pytest.fixture(params=[figure1, graph], ids=lambda target: target.__name__)
def artifact(request, small_workspace):
    return request.param(small_workspace)


def explain(workspace, name):
    pipeline, _, _ = workspace.model(STUDIES[name], "centrality")
    return pipeline.explain(*TEXTS[name].values())


def rows_of(artifact, part, kind):
    return [row for row in artifact.rows[1:] if row[:2] == [part, kind]]


def test_every_word_has_a_row_with_its_weight(artifact, small_workspace):
    record = explain(small_workspace, artifact.name)
    assert tuple(artifact.rows[0]) == COLUMNS
    for (part, text), words in zip(
        TEXTS[artifact.name].items(), record.words, strict=True
    ):
        rows = rows_of(artifact, part, "word")
        assert [row[2] for row in rows] == text.split()
        weights = [float(row[-1]) for row in rows]
        np.testing.assert_allclose(weights, words.weights, atol=1e-6)
        assert sum(weights) == pytest.approx(1, abs=1e-4)


def test_the_edges_are_the_strongest_flows_between_words(artifact, small_workspace):
    record = explain(small_workspace, artifact.name)
    for part, words in zip(TEXTS[artifact.name], record.words, strict=True):
        rows = rows_of(artifact, part, "edge")
        # The flow from j to i, without that from a word to itself.
        flow = np.array(words.heads[0].edges) * np.array(words.weights)
        np.fill_diagonal(flow, -1)
        count = round(figures.EDGES_PER_WORD * len(words.nodes))
        best = np.sort(flow, axis=None)[::-1][:count]
        shares = [float(row[-1]) for row in rows]
        np.testing.assert_allclose(shares, best, atol=1e-6)
        for _, _, word, j, to, i, share in rows:
            assert (words.nodes[int(j)], words.nodes[int(i)]) == (word, to)
            assert flow[int(i), int(j)] == pytest.approx(float(share), abs=1e-6)


def test_the_figure_has_a_node_for_each_word(artifact):
    root = ET.fromstring(artifact.images[f"{artifact.name}.svg"])
    labels = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    for text in TEXTS[artifact.name].values():
        for word in text.split():
            assert any(label.startswith(f"{word} ") for label in labels), word
    nodes = [
        shape
        for group in root.iter(f"{SVG}g")
        if group.get("id", "").startswith("PathCollection")
        for shape in group.iter(f"{SVG}path")
    ]
    assert len(nodes) == sum(
        len(text.split()) for text in TEXTS[artifact.name].values()
    )
    assert artifact.images[f"{artifact.name}.png"].startswith(PNG_MAGIC)


def test_node_areas_and_arrow_widths_are_proportional_to_the_shares(small_workspace):
    words = explain(small_workspace, "figure1").words[0]
    edges = figures.strongest_flows(figures.flow_matrix(words), 1.0)
    figure = figures.draw_graphs([words], [edges], ["sentence"], "title")
    (axes,) = figure.axes
    areas = axes.collections[0].get_sizes()
    np.testing.assert_allclose(areas / areas.sum(), words.weights, rtol=1e-5)
    widths = np.array([arrow.get_linewidth() for arrow in axes.patches])[::-1]
    shares = np.array([edge.share for edge in edges])
    np.testing.assert_allclose(widths / widths[0], shares / shares[0])
    # An arrow goes from its source to its target.
    positions = axes.collections[0].get_offsets()
    begin, end = axes.patches[-1]._posA_posB
    np.testing.assert_allclose(positions[edges[0].source], begin)
    np.testing.assert_allclose(positions[edges[0].target], end)


@pytest.mark.parametrize("count", [1, 2, 16, 40])
def test_nodes_do_not_overlap(count, small_workspace):
    words = explain(small_workspace, "figure1").words[0]
    equal = replace(words, nodes=["word"] * count, weights=[1 / count] * count)
    figure = figures.draw_graphs([equal], [[]], ["sentence"], "title")
    figure.draw_without_rendering()  # runs the layout
    (axes,) = figure.axes
    (nodes,) = axes.collections
    x, y = (axes.transData.transform(nodes.get_offsets()) * 72 / figure.dpi).T
    distance = np.hypot(x - np.roll(x, 1), y - np.roll(y, 1))
    diameter = 2 * np.sqrt(nodes.get_sizes()[0] / np.pi)
    assert count == 1 or distance.min() > diameter


def test_the_result_is_reproducible(artifact, small_workspace):
    again = {"figure1": figure1, "graph": graph}[artifact.name](small_workspace)
    assert again == artifact


def test_the_text_states_the_origin_of_the_model(artifact, small_workspace):
    _, trial, _ = small_workspace.model(STUDIES[artifact.name], "centrality")
    assert trial.command in artifact.text
    for part in (f"![{artifact.title}]({artifact.name}.svg)", "seed 0", "fingerprint"):
        assert part in artifact.text
    for text in TEXTS[artifact.name].values():
        assert text in artifact.text


@pytest.mark.parametrize("target", [figure1, graph])
def test_missing_data_are_reported(target, no_data):
    artifact = target(no_data)
    assert artifact.text.startswith("Missing: ")
    assert ("Treebank" if target is figure1 else "SNLI 1.0") in artifact.text
    assert [tuple(row) for row in artifact.rows] == [COLUMNS]
    assert not artifact.images
    assert not no_data.out.exists()


def test_a_trained_model_does_not_need_the_data(small_workspace, tmp_path):
    expected = figure1(small_workspace)
    assert (
        figure1(Workspace(small_workspace.out, tmp_path, TINY)).images
        == expected.images
    )


def test_only_done_trains_nothing(small_root, tmp_path):
    artifact = figure1(Workspace(tmp_path, small_root, TINY, only_done=True))
    assert "a trained centrality model of sst2" in artifact.text
    assert not any(tmp_path.iterdir())


def test_a_model_with_other_settings_is_an_error(small_workspace, small_root):
    figure1(small_workspace)
    other = Workspace(
        small_workspace.out, small_root, [*TINY, "training.max_grad_norm=3.0"]
    )
    with pytest.raises(PerronError, match=mentions("perron train", "--out")):
        figure1(other)


def test_a_model_that_another_process_is_training_is_awaited(
    small_workspace, monkeypatch
):
    monkeypatch.setattr(workspace_module, "WAIT_SECONDS", 0.01)
    trial = small_workspace.trial("sst2", "centrality")
    folder = small_workspace.out / "runs" / "sst2"
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as other:
        other.enter_context(lock_folder(folder, trial.lock_name))
        threading.Timer(0.3, other.close).start()
        _, trained_trial, _ = small_workspace.model("sst2", "centrality")
    assert trained_trial == trial
