import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERRON_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def real_data():
    """Folder of the real datasets; a test that asks for it skips without them."""
    if "PERRON_DATA" not in os.environ:
        pytest.skip("PERRON_DATA is not set: it names the folder of the real datasets")
    return Path(os.environ["PERRON_DATA"])


@pytest.fixture
def write(tmp_path):
    """Write a file, text or bytes, and return its path."""

    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(raw)
        return path

    return write
