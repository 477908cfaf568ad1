"""Selection of a backend for every operation."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from perron_tests import environment
from perron_tests.errors import assert_mentions, mentions
from perron_tests.plain import run_plain

from perron import CentralityPool, IntraAttentionPool, MaxPool, SelfAttentionPool
from perron.errors import SettingsError
from perron.kernels import (
    BACKENDS,
    OPERATIONS,
    Backend,
    Kernels,
    is_eager,
    select,
    select_for_graph,
    selected,
    use,
)

X = torch.zeros(1)

POOL = """
import sys, warnings
import torch
from perron import CentralityPool, MaxPool, stationary_distribution
from perron.kernels import selected, use
warnings.simplefilter("always")

def report():
    print(*{*selected(states).values()}, "numba" in sys.modules, flush=True)

states = torch.randn(3, 4, 5)
mask = torch.arange(4) < torch.tensor([[4], [2], [3]])
for pool in (CentralityPool(5), MaxPool(5)):
    pool(states.requires_grad_(), mask).vector.sum().backward()
    pool(states[mask], lengths=mask.sum(1)).vector.sum().backward()
stationary_distribution(torch.rand(9, 3, 3))
report()
"""


WITHOUT_NUMBA = "import sys; sys.modules['numba'] = None"


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a separate process."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(**variables),
        capture_output=True,
        text=True,
    )


def batch(dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    states = torch.randn(4, 6, 5, generator=rng, dtype=dtype).requires_grad_()
    mask = torch.arange(6) < torch.tensor([[6], [2], [0], [5]])
    return states, mask


class TestUse:
    def test_the_cpu_uses_numba_and_other_devices_use_torch(self):
        assert selected(X) == dict.fromkeys(OPERATIONS, "numba")
        meta = torch.zeros(1, device="meta")
        assert selected(meta) == dict.fromkeys(OPERATIONS, "torch")
        with use("numba"):
            assert selected(meta) == dict.fromkeys(OPERATIONS, "torch")

    def test_blocks_can_be_nested_and_end_on_errors(self):
        with use("torch"):
            assert select("stationary", X).backend == "torch"
            with use("auto"):
                assert select("stationary", X).backend == "numba"
            with pytest.raises(KeyError), use("numba"):
                raise KeyError(select("stationary", X).backend)
            assert select("stationary", X).backend == "torch"
        assert select("stationary", X).backend == "numba"

    def test_a_block_applies_only_to_its_thread(self):
        with ThreadPoolExecutor(1) as pool, use("torch"):
            assert pool.submit(selected, X).result()["stationary"] == "numba"
            assert selected(X)["stationary"] == "torch"

    @pytest.mark.parametrize("name", ["cuda", "", "Numba", "perron"])
    def test_an_unknown_name_is_an_error_with_the_choices(self, name):
        parts = ("auto, numba, torch", repr(name))
        with pytest.raises(SettingsError, match=mentions(*parts)):
            use(name).__enter__()

    def test_a_custom_backend_is_used_for_its_operations(self):
        real = select("stationary", X)
        custom = Backend("custom", lambda: {"stationary": real}, devices=("cpu",))
        with use(custom):
            assert selected(X) == dict.fromkeys(OPERATIONS, "numba") | {
                "stationary": "custom"
            }
            meta = torch.zeros(1, device="meta")
            assert select("stationary", meta).backend == "torch"

    def test_an_unknown_operation_is_an_error(self):
        real = select("stationary", X)
        typo = Backend("typo", lambda: {"stationery": real})
        with use(typo), pytest.raises(ValueError, match="stationery"):
            select("stationary", X)

    def test_traced_graphs_depend_only_on_the_environment(self):
        with use("torch"):
            assert select_for_graph("stationary", X).backend == "numba"


def test_every_backend_implements_every_operation():
    for backend in BACKENDS.values():
        assert set(backend.kernels) == set(OPERATIONS)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace:DeprecationWarning")
def test_only_plain_tensors_in_eager_mode_are_eager():
    class Subclass(torch.Tensor):
        pass

    assert is_eager(X, torch.nn.Parameter(X))
    assert not is_eager(X, X.as_subclass(Subclass))
    assert not is_eager(torch.empty(1, device="meta").as_subclass(Subclass))
    results = []

    def traced(x):
        results.append(is_eager(x))
        return x + 1

    torch.jit.trace(traced, X, check_trace=False)
    assert results == [False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "pool",
    [
        MaxPool(5),
        SelfAttentionPool(5),
        CentralityPool(5, num_heads=2),
        CentralityPool(5, activation="relu", value="incoming"),
        CentralityPool(5, connectivity="bilinear", norm="l2"),
        CentralityPool(5, connectivity="low_rank"),
    ],
    ids=str,
)
@pytest.mark.parametrize("ragged", [False, True])
def test_backends_agree_up_to_rounding(pool, ragged, dtype):
    pool = pool.to(dtype)
    states, mask = batch(dtype)
    results = []
    for kernels in ("numba", "torch"):
        with use(kernels):
            if ragged:
                pooled = pool(states[mask], lengths=mask.sum(1))
            else:
                pooled = pool(states, mask)
        leaves = [states, *pool.parameters()]
        total = pooled.vector.square().sum()
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
        results.append((pooled.vector, pooled.weights, *grads))
    for got, want in zip(*results, strict=True):
        if got is not None:
            tolerance = 1e-5 if dtype == torch.float32 else 1e-12
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def recording_backend(name: str, calls: list[str]) -> Backend:
    """Return a backend that records its name when one of its functions is called."""

    def record(function):
        return lambda *arguments: (calls.append(name), function(*arguments))[1]

    def load() -> dict[str, Kernels]:
        return {
            operation: Kernels(record(kernels.forward), record(kernels.backward))
            for operation, kernels in BACKENDS[name].kernels.items()
        }

    return Backend(name, load)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("names", [("numba", "torch"), ("torch", "numba")])
@pytest.mark.parametrize("pool", [CentralityPool, IntraAttentionPool])
def test_backward_in_another_block_uses_the_kernels_of_forward(pool, names, ragged):
    """Intra-attention broadcasts from texts to tokens; its backward is a sum."""
    calls = []
    states, mask = batch()
    first, second = (recording_backend(name, calls) for name in names)
    with use(first):
        if ragged:
            vector = pool(5).double()(states[mask], lengths=mask.sum(1)).vector
        else:
            vector = pool(5).double()(states, mask).vector
    used_in_forward = set(calls)
    calls.clear()
    with use(second):
        vector.sum().backward()
    assert set(calls) == used_in_forward <= {first.name}
    if ragged or pool is CentralityPool:
        assert calls


class TestEnvironment:
    def test_torch_does_not_import_numba_until_a_block_selects_it(self):
        process = run(POOL + "with use('numba'): report()", PERRON_KERNELS="torch")
        assert process.stdout.splitlines() == ["torch False", "numba True"], (
            process.stderr
        )
        assert not process.stderr

    @pytest.mark.parametrize("choice", ["", "auto"])
    def test_numba_is_the_default(self, choice):
        process = run(POOL, PERRON_KERNELS=choice)
        assert process.stdout.split() == ["numba", "True"], process.stderr

    def test_an_unknown_value_is_an_error_with_the_name_and_the_choices(self):
        process = run(POOL, PERRON_KERNELS="triton")
        parts = ("PERRON_KERNELS", "auto, numba, torch", "'triton'")
        assert_mentions(process.stderr, *parts)
        assert process.returncode == 1

    @pytest.mark.parametrize("problem", ["missing", "cannot compile"])
    def test_without_numba_torch_is_used_with_one_warning(self, problem):
        if problem == "missing":
            process = run(WITHOUT_NUMBA + POOL)
        else:
            process = run(POOL, NUMBA_DISABLE_JIT="1")
        assert process.stdout.split()[0] == "torch", process.stderr
        assert process.stderr.count("RuntimeWarning: The numba kernels cannot") == 1

    def test_numba_selected_by_name_has_no_fallback(self):
        process = run(WITHOUT_NUMBA + POOL, PERRON_KERNELS="numba")
        assert process.returncode == 1
        assert "ModuleNotFoundError" in process.stderr
        assert "RuntimeWarning" not in process.stderr

    def test_compile_and_export_with_torch_kernels(self):
        output = run_plain("compile_solver.py", PERRON_KERNELS="torch")
        assert output.split() == ["compiled", "exported"]

    def test_operators_with_torch_kernels_pass_opcheck(self):
        output = run_plain("check_operators.py", PERRON_KERNELS="torch")
        assert output.split() == ["torch", "checked"]
