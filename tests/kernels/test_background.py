"""Compilation in a background thread, while plain torch answers."""

import multiprocessing
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from perron_tests import environment
from perron_tests.graphs import softmax_edges

from perron import CentralityPool, stationary_distribution
from perron.kernels import (
    BACKENDS,
    OPERATIONS,
    Backend,
    compile_in_background,
    dispatch,
    select,
    select_for_graph,
    selected,
    use,
    wait_for_compiled,
)
from perron.kernels.background import BackgroundCompiler, example

KEY = ("stationary", torch.float32)
OTHER = ("pair_scores", torch.float64)
X = torch.zeros(1)


class Build:
    """Fake compilation that takes until it is released or interrupted."""

    def __init__(self):
        self.started = threading.Semaphore(0)
        self.release = threading.Event()
        self.calls = []
        self.error = None

    def __call__(self, operation, dtype, check):
        self.calls.append((operation, dtype))
        self.started.release()
        while not self.release.wait(0.01):
            check()
        if self.error is not None:
            raise self.error


@pytest.fixture
def build():
    return Build()


@pytest.fixture
def compiler(build):
    compiler = BackgroundCompiler(build, lambda: None, patience=0.0)
    yield compiler
    build.release.set()
    compiler.join(20.0)


class TestCompiler:
    def test_it_compiles_what_was_requested_once_and_in_order(self, compiler, build):
        build.release.set()
        for key in (KEY, OTHER, KEY):
            compiler.request(key)
        compiler.join(20.0)
        compiler.request(KEY)
        assert compiler.ready == {KEY, OTHER}
        assert build.calls == [KEY, OTHER]

    def test_it_starts_after_a_while_with_another_request(self, compiler, build):
        compiler.patience = 0.05
        compiler.request(KEY)
        assert not build.started.acquire(timeout=0.2)
        compiler.request(KEY)
        assert build.started.acquire(timeout=20)

    def test_an_error_is_kept_and_the_others_are_compiled(self, compiler, build):
        build.error = OSError("disk full")
        compiler.request(KEY)
        build.release.set()
        compiler.join(20.0)
        build.error = None
        compiler.request(OTHER)
        compiler.join(20.0)
        assert compiler.failed == {KEY: compiler.failed[KEY]}
        assert str(compiler.failed[KEY]) == "disk full"
        assert compiler.ready == {OTHER}

    def test_a_fork_interrupts_the_compilation_and_it_starts_again(
        self, compiler, build
    ):
        compiler.request(KEY)
        assert build.started.acquire(timeout=20)
        results = multiprocessing.get_context("fork").SimpleQueue()

        def child():
            build.release.set()
            compiler.request(KEY)  # starts a thread of the child
            compiler.join(20.0)
            results.put(KEY in compiler.ready)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(20.0)
        assert process.exitcode == 0
        assert results.get()
        assert build.started.acquire(timeout=20)  # in the parent
        build.release.set()
        compiler.join(20.0)
        assert KEY in compiler.ready

    def test_an_exit_interrupts_the_compilation_for_good(self, compiler, build):
        compiler.request(KEY)
        assert build.started.acquire(timeout=20)
        compiler._exit()
        compiler.join(20.0)
        compiler.request(OTHER)
        assert not compiler.ready
        assert not build.started.acquire(timeout=0.1)


@pytest.fixture
def new_process(monkeypatch):
    """Reset the state of compilation to that of a new process."""
    compiler = BackgroundCompiler(dispatch._build, dispatch._select.cache_clear)
    monkeypatch.setattr(dispatch, "_compiler", lambda: compiler)
    monkeypatch.setattr(dispatch, "_waits", False)
    monkeypatch.setattr(dispatch, "_unusable", set())
    dispatch._select.cache_clear()
    dispatch._works.cache_clear()
    yield compiler
    compiler.join(120.0)
    dispatch._select.cache_clear()
    dispatch._works.cache_clear()


@pytest.mark.usefixtures("new_process")
class TestCalls:
    def test_the_first_calls_use_torch_and_later_ones_agree(self, new_process):
        compile_in_background()
        edges = softmax_edges(9, 5, 5, std=1).float()
        with torch.inference_mode():
            assert select("stationary", edges).backend == "torch"
            first = stationary_distribution(edges)
            new_process.join(120.0)
            assert select("stationary", edges).backend == "numba"
            later = stationary_distribution(edges)
        torch.testing.assert_close(first, later, rtol=1e-5, atol=1e-7)

    def test_nothing_is_compiled_for_a_single_call(self, new_process):
        with torch.inference_mode():
            CentralityPool(3)(torch.ones(1, 2, 3), torch.ones(1, 2, dtype=torch.bool))
        assert new_process._thread is None
        assert {operation for operation, _ in new_process._requested} == {
            "segment_sum",
            "pair_scores",
            "column_softmax",
            "stationary",
        }

    @pytest.mark.parametrize("grads", ["enabled", "inside a function", "deterministic"])
    def test_training_waits_and_so_do_all_calls_after_it(self, grads):
        with torch.no_grad():
            assert select("stationary", X).backend == "torch"
        if grads == "enabled":
            assert select("stationary", X).backend == "numba"
        elif grads == "inside a function":
            with torch.no_grad():
                x = torch.zeros(1, requires_grad=True)
                assert select("stationary", x).backend == "numba"
        else:
            torch.use_deterministic_algorithms(True)
            try:
                with torch.no_grad():
                    assert select("stationary", X).backend == "numba"
            finally:
                torch.use_deterministic_algorithms(False)
        with torch.no_grad():
            assert select("pair_scores", X).backend == "numba"

    @torch.no_grad()
    def test_a_backend_selected_by_name_waits(self):
        with use("numba"):
            assert select("stationary", X).backend == "numba"
        assert select("stationary", X).backend == "torch"

    @torch.no_grad()
    def test_every_call_waits_on_request(self):
        wait_for_compiled()
        assert select("stationary", X).backend == "numba"

    @torch.no_grad()
    def test_graphs_wait(self):
        assert select_for_graph("stationary", X).backend == "numba"

    @torch.no_grad()
    def test_the_selected_backend_is_the_one_that_will_be_used(self):
        assert selected(X) == dict.fromkeys(OPERATIONS, "numba")
        assert select("stationary", X).backend == "torch"

    @torch.no_grad()
    def test_a_failure_in_the_thread_gives_one_warning_and_torch(
        self, monkeypatch, new_process
    ):
        def load():
            raise OSError("no LLVM")

        monkeypatch.setitem(BACKENDS, "numba", Backend("numba", load, ("cpu",)))
        compile_in_background()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert select("stationary", X).backend == "torch"
            new_process.join(20.0)
        with pytest.warns(RuntimeWarning, match="numba kernels cannot.*no LLVM"):
            assert select("stationary", X).backend == "torch"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                assert select("pair_scores", X).backend == "torch"
                new_process.join(20.0)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_examples_suit_every_backend(operation):
    arguments = example(operation, torch.float32)
    results = [
        BACKENDS[name].kernels[operation].forward(*arguments)
        for name in ("torch", "numba")
    ]
    if operation == "stationary":
        results = [result[0] for result in results]
    torch.testing.assert_close(*results)


COMPILING = """
import multiprocessing, sys, time, torch
from perron import stationary_distribution
from perron.kernels import compile_in_background, dispatch
compile_in_background()
with torch.inference_mode():
    stationary_distribution(torch.rand(9, 3, 3))

def compile_something():
    import numba
    assert numba.njit(lambda x: x + 1)(1) == 2

"""


def run(code, folder):
    process = subprocess.run(
        [sys.executable, "-c", COMPILING + code],
        env=environment(NUMBA_CACHE_DIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not process.stderr
    assert process.returncode == 0
    return process.stdout.split()


@pytest.mark.parametrize("delay", [0, 0.3, 1.5])
def test_a_process_can_exit_while_it_compiles(delay, tmp_path):
    code = f"""
time.sleep({delay})
print(dispatch._compiler()._thread is not None)
"""
    assert run(code, tmp_path) == ["True"]
    assert not [*tmp_path.rglob("gth_long.solve_long*")]


@pytest.mark.parametrize("delay", [0, 1.5])
def test_a_process_can_fork_while_it_compiles(delay, tmp_path):
    code = f"""
time.sleep({delay})
context = multiprocessing.get_context("fork")
children = [context.Process(target=compile_something) for _ in range(2)]
for child in children:
    child.start()
for child in children:
    child.join(120.0)
print(*[child.exitcode for child in children])
"""
    assert run(code, tmp_path) == ["0", "0"]
