"""Commands are run in this process: importing torch takes seconds."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from training.tiny import write_texts

from perron.cli.app import run


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, cache):
    monkeypatch.setenv("PERRON_CACHE", str(cache))
    monkeypatch.setenv("COLUMNS", "200")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for models this small, two threads only wait
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def perron(monkeypatch, capsys) -> Callable[..., Outcome]:
    def command(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["perron", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            run()
        status = ended.value.code
        told = capsys.readouterr()
        return Outcome(0 if status is None else status, told.out, told.err)

    return command


TINY = [
    "--vectors=none",
    "--set=model.embedding={dim=8}",
    "--set=model.encoder.hidden=4",
    "--set=training.max_epochs=4",
    "--set=training.learning_rate=0.03",
    "--set=training.batch_size=8",
    "--set=training.batch_size_low=8",
]


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts") / "texts.csv")


@pytest.fixture
def model(perron, texts, cache):
    folder = cache / "model"
    if not folder.exists():
        told = perron("train", "--data", texts, "--out", folder, *TINY)
        assert told.status == 0, told.err
    return folder
