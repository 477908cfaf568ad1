"""Fixtures for all tests, and the order of the test files."""

import signal

import pytest
import torch

from perron_tests import TRITON_DEVICE

# Files with the slowest tests. They run first, so that parallel workers do not wait for
# them at the end.
SLOW_FILES = (
    "test_examples.py",
    "test_triton.py",
    "test_train.py",
    "test_distributed.py",
    "test_corpora_ray.py",
    "test_resume.py",
)


# Background jobs of a shell ignore SIGINT, and so would the child processes that tests
# start, some of which are interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    if TRITON_DEVICE:
        others = [item for item in items if not _runs_triton(item)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
    items.sort(key=lambda item: item.path.name not in SLOW_FILES)  # a stable sort


def _runs_triton(item):
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return "kernels" in item.path.parts or "triton" in params


@pytest.fixture(autouse=bool(TRITON_DEVICE))
def _uninitialized_memory_is_nan():
    """Make torch.empty return NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session", autouse=True)
def _same_kernels():
    """Wait for compiled kernels, so that results do not depend on timing."""
    from perron.kernels import wait_for_compiled

    wait_for_compiled()


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


# The tensors of most tests are too small for several threads. Set at import, because
# module fixtures run before test fixtures and must be reproducible, too.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread, and reset it for the fixtures that follow."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch, tmp_path_factory):
    """Cache encoded texts for this test run, outside the cache of the user."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("PERRON_CACHE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def small_default_encoder(monkeypatch):
    """Train a small model by default, even if a pretrained encoder is installed."""
    monkeypatch.setenv("PERRON_ENCODER", "bilstm")


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)
