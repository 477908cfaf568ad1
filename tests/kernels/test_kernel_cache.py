"""The cache of compiled kernels on disk."""

import numpy as np
import pytest
from numba.core import config

from perron.kernels import compile as compilation
from perron.kernels.compile import jit


def increment(x):
    x[0] += 1


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(dtype=np.float64):
    """Run the kernel as a new process would; return whether it was compiled."""
    kernel = jit(entry=True)(increment)
    x = np.zeros(1, dtype)
    kernel(x)
    assert x[0] == 1
    return bool(kernel.stats.cache_misses)


def files(folder):
    return sorted(folder.rglob("*.nbc"))


def test_a_kernel_is_compiled_once_for_each_dtype(folder):
    assert [run(np.float32), run(np.float64)] == [True, True]
    assert [run(np.float32), run(np.float64)] == [False, False]
    assert len(files(folder)) == 2


def test_a_change_to_any_kernel_file_changes_the_folder(folder, monkeypatch, tmp_path):
    for name in ("compile.py", "simd.py"):
        source = "from perron.kernels.compile import jit\n@jit()\ndef f(): ...\n"
        (tmp_path / name).write_text(source)
    (tmp_path / "gth_torch.py").write_text("import torch\n")
    monkeypatch.setattr(compilation, "__file__", str(tmp_path / "compile.py"))
    digests = []
    for name in ("gth_torch.py", "simd.py", "compile.py"):
        compilation._digest.cache_clear()
        digests.append(compilation._digest(__file__))
        with (tmp_path / name).open("a") as file:
            file.write("# changed\n")
    compilation._digest.cache_clear()
    digests.append(compilation._digest(__file__))
    compilation._digest.cache_clear()
    # Files without compiled functions do not count.
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_files_of_other_sources_are_not_read(folder, monkeypatch):
    run()
    (path,) = files(folder)
    path.write_bytes(b"a pickle of a class that was renamed")
    monkeypatch.setattr(compilation, "_digest", lambda file: "other")
    assert run()
    assert not run()
    assert len(files(folder)) == 2


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_a_damaged_file_is_replaced(folder, content):
    run()
    (path,) = files(folder)
    path.write_bytes(content)
    assert run()
    assert not run()


def test_a_folder_that_becomes_unwritable_is_ignored(folder):
    kernel = jit(entry=True)(increment)
    (cache,) = folder.iterdir()
    cache.rmdir()
    cache.write_text("a file in place of the folder")
    x = np.zeros(1)
    kernel(x)
    assert x[0] == 1
