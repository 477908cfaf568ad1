import pytest
from perron_tests.paper_data import TINY, write_snli, write_sst

from perron.reproduction.work import Work


@pytest.fixture(autouse=True)
def _no_real_data(monkeypatch):
    monkeypatch.delenv("PERRON_DATA", raising=False)


@pytest.fixture(scope="session")
def small_root(tmp_path_factory):
    """SST and SNLI, small; no reviews."""
    root = tmp_path_factory.mktemp("small-data")
    write_sst(root)
    write_snli(root)
    return root


@pytest.fixture(scope="session")
def small_work(tmp_path_factory, small_root):
    """Tiny studies of that data; what one test trains the next one finds."""
    return Work(tmp_path_factory.mktemp("reproduced"), small_root, TINY)


@pytest.fixture
def no_data(tmp_path):
    (tmp_path / "data").mkdir()
    return Work(tmp_path / "out", tmp_path / "data", TINY)
