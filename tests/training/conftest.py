import pytest
import torch


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for models this small, two threads only wait
    yield
    torch.set_num_threads(threads)
