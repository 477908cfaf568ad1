"""Fixtures of all tests, and the order in which their files are run."""

import signal

import pytest
import torch

# Files whose tests take longest. They begin first, lest at the end one process is left
# with one of them while the others have nothing to do.
LONG = (
    "test_examples.py",
    "test_train.py",
    "test_distributed.py",
    "test_corpora_ray.py",
    "test_resume.py",
)


# What runs behind a shell's back ignores Ctrl-C, and so would the processes that tests
# start, some of which are to be interrupted.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONG)  # keeps the order else


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


# Several threads would only wait for each other with tensors as small as most tests'.
# Set from the start: fixtures of modules come before those of a test, and their numbers
# have to be the same.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread, and leave it at that for the fixtures that follow."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch, tmp_path_factory):
    """Keep encoded texts for this run of the tests, out of the user's own cache."""
    folder = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("PERRON_CACHE", str(folder))
    return folder


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)
