"""Parallel loops over texts with threads, forks and data loaders."""

import multiprocessing
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from perron_tests.graphs import softmax_edges

from perron import stationary_distribution
from perron.kernels.compile import CompilationNotice, balanced_ranges, parallel_for


def solve_large_batch() -> torch.Tensor:
    """Return weights and gradients of a batch large enough for several threads."""
    edges = softmax_edges(40, 80, 80, std=1).float().requires_grad_()
    weights = stationary_distribution(edges)
    weights.square().sum().backward()
    return torch.cat([weights.detach().flatten(), edges.grad.flatten()])


def test_ranges_cover_every_text_once_and_balance_the_work():
    work = np.concatenate([np.ones(50), np.full(5, 100.0)])
    ranges = balanced_ranges(work, 8)
    assert [text for first, last in ranges for text in range(first, last)] == list(
        range(55)
    )
    assert max(work[first:last].sum() for first, last in ranges) <= 200


def test_threads_are_as_many_as_in_torch_and_do_not_change_results(four_threads):
    names = set()

    def kernel(first, last):
        if last > first:
            names.add(threading.current_thread().name)
            barrier.wait(timeout=20)

    work = np.full(4, 1e9)
    barrier = threading.Barrier(4)
    parallel_for(kernel, work)
    assert len(names) == 4
    parallel = solve_large_batch()
    torch.set_num_threads(1)
    assert torch.equal(solve_large_batch(), parallel)
    names.clear()
    barrier = threading.Barrier(1)
    parallel_for(kernel, work)
    assert names == {threading.current_thread().name}


def run_on_four_threads() -> None:
    """Run a kernel that times out on fewer than four threads."""
    barrier = threading.Barrier(4)

    def kernel(first, last):
        if last > first:
            barrier.wait(timeout=20)

    parallel_for(kernel, np.full(4, 1e9))


class SolvedBatches(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return solve_large_batch(), torch.get_num_threads()


def test_a_forked_process_starts_its_own_threads(four_threads):
    run_on_four_threads()
    child = multiprocessing.get_context("fork").Process(target=run_on_four_threads)
    child.start()
    child.join(timeout=60)
    assert child.exitcode == 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_data_loader_workers_agree_and_use_one_thread_each(method, four_threads):
    want = solve_large_batch()
    loader = torch.utils.data.DataLoader(
        SolvedBatches(), batch_size=None, num_workers=2, multiprocessing_context=method
    )
    for got, threads in loader:
        assert torch.equal(got, want)
        assert threads == 1


def test_a_slow_first_call_logs_a_message_once(caplog):
    notice = CompilationNotice(after=0.01)

    def slow(first, last):
        time.sleep(0.5 if last == 0 else 0)

    parallel_for(slow, np.ones(1), notice=notice)
    assert "PERRON_KERNELS=torch" in caplog.text
    caplog.clear()
    parallel_for(slow, np.ones(1), notice=notice)
    assert not caplog.text


def test_concurrent_calls_from_python_threads_agree(four_threads):
    want = solve_large_batch()
    with ThreadPoolExecutor(6) as pool:
        for got in pool.map(lambda _: solve_large_batch(), range(12)):
            assert torch.equal(got, want)


@pytest.mark.slow
def test_kernels_work_without_a_writable_cache():
    code = """
import numba.core.caching, torch
def no_locator(*args, **kwargs):
    raise RuntimeError("cannot cache function: no locator available")
numba.core.caching.CacheImpl.__init__ = no_locator
from perron import stationary_distribution
print(stationary_distribution(torch.tensor([[0.5, 0.5], [0.5, 0.5]])).tolist())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[0.5, 0.5]", run.stderr
