"""The notebooks are complete and run."""

import re

import nbformat
import pytest
from perron_tests.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_three_notebooks():
    assert len(NOTEBOOKS) == 3


@every_notebook
def test_a_notebook_is_valid_and_was_run_from_top_to_bottom(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith("# ")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error"]


@every_notebook
def test_a_notebook_has_no_traces_of_the_machine_it_ran_on(path):
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r"(?<![\w.\\:/])/(?:home|root|tmp|work|usr|var)/", text)
    assert "site-packages" not in text
    assert "Warning" not in text


@pytest.mark.slow
@every_notebook
# The Jupyter client uses deprecated features.
@pytest.mark.filterwarnings("ignore")
def test_a_notebook_runs_in_an_empty_folder(path, tmp_path):
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=resources).execute()
    assert all(cell.execution_count for cell in notebook.cells if "outputs" in cell)
