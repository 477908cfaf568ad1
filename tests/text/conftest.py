import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def real_data():
    """Folder of the real datasets. The test is skipped if they are missing."""
    if "PERRON_DATA" not in os.environ:
        pytest.skip("PERRON_DATA, the folder of the real datasets, is not set")
    return Path(os.environ["PERRON_DATA"])


@pytest.fixture
def write(tmp_path):
    """Function that writes a file, text or bytes, and returns its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(raw)
        return path

    return write
