"""The code in the README, the documentation and the examples runs."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from perron_tests import environment
from perron_tests.pages import PAGES, ROOT, has_code


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run a quick demo and return its folder and its output."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, ROOT / "examples" / "demo.py", "--epochs", "1"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    return folder, run.stdout


@pytest.fixture
def folder(demo, tmp_path):
    """Return a new folder with the models of the demo."""
    (tmp_path / "runs").mkdir()
    for name in ("demo", "demo-runs"):
        (tmp_path / "runs" / name).symlink_to(demo[0] / "runs" / name)
    return tmp_path


def page_param(page):
    """Return a parameter that is marked as slow for tutorials, which train models."""
    slow = [pytest.mark.slow] if page.startswith("docs/tutorials/") else []
    return pytest.param(page, marks=slow)


@pytest.mark.parametrize("page", [page_param(page) for page in PAGES if has_code(page)])
def test_the_code_on_a_page_runs(page, folder):
    """See pages.py for the blocks that are run and how to skip one."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.Popen(
        [sys.executable, "-m", "perron_tests.run_page", page],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=environment(PATH=path),
        start_new_session=True,
    )
    try:
        output, _ = run.communicate(timeout=600)
    finally:  # a failed page may have left a server running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
    assert run.returncode == 0, output


def test_every_example_is_tested():
    names = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert names == {
        "datasets_map.py",
        "demo.py",
        "hugging_face.py",
        "onnx_inference.py",
        "ray_corpus.py",
        "scikit_learn.py",
        "sentence_embeddings.py",
        "spark_udf.py",
        "word_graph.py",
    }


def test_the_demo_prints_results_and_saves_a_model(demo):
    folder, output = demo
    for name in ("centrality", "self-attention", "max", "mean"):
        assert name in output
    assert "gorgeous" in output
    assert "perron predict runs/demo" in output
    assert (folder / "runs/demo/model.safetensors").exists()
    page = (folder / "runs/demo/graph.html").read_text(encoding="utf-8")
    assert page.count('"schema": "perron-graph-3"') == 8  # four sentences, two models


def test_the_word_graph_example_compares_centralities(demo):
    folder, _ = demo
    command = [sys.executable, ROOT / "examples" / "word_graph.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    for name in ("eigenvector", "in-degree", "closeness", "betweenness", "film"):
        assert name in run.stdout
    difference = re.search(
        r"PageRank without teleportation differs by at most (\S+)\.", run.stdout
    )
    assert float(difference[1]) < 1e-6
    assert (folder / "runs/word-graph.png").read_bytes().startswith(b"\x89PNG")


def test_the_word_graph_example_names_the_missing_demo(tmp_path):
    command = [sys.executable, ROOT / "examples" / "word_graph.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 1
    assert "examples/demo.py" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("datasets_map.py", "from the cache: True"),
        ("ray_corpus.py", "every row once, in order: True"),
        pytest.param("spark_udf.py", "gorgeous", marks=pytest.mark.spark),
    ],
)
def test_the_corpus_examples_run(name, output, folder):
    command = [sys.executable, ROOT / "examples" / name]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    assert output in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("data", ["few pairs", "STS-B"])
def test_the_sentence_embeddings_example_runs(data, tmp_path):
    environment = dict(os.environ)
    if data == "few pairs":
        environment.pop("PERRON_DATA", None)
    elif "PERRON_DATA" not in environment:
        pytest.skip("PERRON_DATA, the folder of the real datasets, is not set")
    path = ROOT / "examples" / "sentence_embeddings.py"
    command = [sys.executable, path, "--steps", "2", "--pairs", "20"]
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert run.returncode == 0, run.stderr
    for text in ("centrality, trained  0.", "lighthouse", "pairs of"):
        assert text in run.stdout
    assert ("STS-B test" in run.stdout) == (data == "STS-B")
    saved = tmp_path / "runs/sentence-embeddings/1_CentralityPooling"
    assert (saved / "model.safetensors").is_file()


@pytest.mark.slow
def test_the_scikit_learn_example_runs(tmp_path):
    command = [sys.executable, ROOT / "examples" / "scikit_learn.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    accuracies = re.findall(r"(?:regression|BiLSTM)  (\S+) %", run.stdout)
    assert len(accuracies) == 3
    assert min(map(float, accuracies)) > 65
    assert run.stdout.count("'num_heads': 4") == 2
    assert "Word weights" in run.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_onnx_example_runs_without_perron_and_torch(demo):
    folder, _ = demo
    command = [sys.executable, ROOT / "examples" / "onnx_inference.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    assert "gorgeous" in run.stdout
    difference = re.search(r"probabilities differ by at most (\S+)\.", run.stdout)
    assert float(difference[1]) < 1e-5


@pytest.mark.slow
def test_the_hugging_face_example_runs(tmp_path):
    command = [sys.executable, ROOT / "examples" / "hugging_face.py"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    accuracy = re.search(r"accuracy on 200 test sentences: (\S+) %", run.stdout)
    assert float(accuracy[1]) > 65
    assert "'label': 'positive'" in run.stdout
    assert "film" in run.stdout.splitlines()[-1]
    assert (tmp_path / "runs/hugging-face/model.safetensors").is_file()
