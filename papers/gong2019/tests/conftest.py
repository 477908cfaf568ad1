import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from papers.gong2019.reproduce import run
from papers.gong2019.tests.small_data import TINY, write_snli, write_sst
from papers.gong2019.workspace import Workspace


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("PERRON_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def reproduce(monkeypatch, capsys) -> Callable[..., Outcome]:
    """The command, run in this process because importing torch takes seconds."""

    def command(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["papers.gong2019", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            run()
        printed = capsys.readouterr()
        return Outcome(exit_.value.code or 0, printed.out, printed.err)

    return command


@pytest.fixture(scope="session")
def small_root(tmp_path_factory):
    """Small versions of SST and SNLI, without reviews."""
    root = tmp_path_factory.mktemp("small-data")
    write_sst(root)
    write_snli(root)
    return root


@pytest.fixture(scope="session")
def small_workspace(tmp_path_factory, small_root):
    """Tiny studies on that data; tests share their trained models."""
    return Workspace(tmp_path_factory.mktemp("reproduced"), small_root, TINY)


@pytest.fixture
def no_data(tmp_path):
    (tmp_path / "data").mkdir()
    return Workspace(tmp_path / "out", tmp_path / "data", TINY)
