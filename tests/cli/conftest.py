"""Fixtures that run commands in this process, because importing torch takes seconds."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
from perron_tests.training import TINY, write_texts

from perron.cli.app import run


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def perron(monkeypatch, capsys) -> Callable[..., Outcome]:
    def command(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["perron", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            run()
        status = exit_info.value.code
        captured = capsys.readouterr()
        return Outcome(0 if status is None else status, captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts") / "texts.csv")


@pytest.fixture
def model(perron, texts, shared_cache):
    folder = shared_cache / "model"
    if not folder.exists():
        outcome = perron("train", "--data", texts, "--out", folder, *TINY)
        assert outcome.status == 0, outcome.err
    return folder
