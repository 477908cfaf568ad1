"""Selection of a backend for every operation."""

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from perron_tests import environment
from perron_tests.errors import assert_mentions, mentions
from perron_tests.graphs import random_edges
from perron_tests.plain import run_plain
from perron_tests.synchronization import NoSynchronization
from torch._subclasses.fake_tensor import FakeTensorMode

from perron import CentralityPool, IntraAttentionPool, MaxPool, SelfAttentionPool
from perron.arguments import bool_mask
from perron.errors import SettingsError
from perron.kernels import (
    BACKENDS,
    OPERATIONS,
    Backend,
    Kernels,
    dispatch,
    is_eager,
    select,
    select_for_graph,
    selected,
    self_check,
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
        parts = ("auto, numba, triton, torch", repr(name))
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


def test_numba_and_torch_implement_every_operation():
    for name in ("numba", "torch"):
        assert set(BACKENDS[name].kernels) == set(OPERATIONS)


class TestTriton:
    """The choice of Triton's kernels, without a GPU."""

    GPU = torch.device("cuda", 0)

    @pytest.fixture(autouse=True)
    def gpu(self, monkeypatch):
        """Pretend that there is a GPU, with some kernels for it."""
        own = Backend(
            "triton",
            lambda: {"stationary": Kernels(lambda *_: "triton", lambda *_: "triton")},
            devices=("cuda",),
            dtypes=(torch.float32,),
        )
        self.capability = (8, 0)
        monkeypatch.setitem(BACKENDS, "triton", own)
        monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda _: True)
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda device: self.capability
        )
        dispatch._select.cache_clear()
        dispatch._works.cache_clear()
        dispatch._checked.cache_clear()
        yield
        dispatch._select.cache_clear()
        dispatch._works.cache_clear()
        dispatch._checked.cache_clear()

    def choose(self, operation="stationary", dtype=torch.float32, choice="auto"):
        return dispatch._select(operation, self.GPU, dtype, choice).backend

    def test_a_recent_gpu_uses_it_for_float32_and_the_operations_it_has(self):
        assert self.choose() == "triton"
        assert self.choose(dtype=torch.float64) == "torch"
        assert self.choose("column_softmax") == "torch"
        assert dispatch._select("stationary", "cpu", torch.float32, "auto").backend == (
            "numba"
        )

    def test_an_older_gpu_uses_it_only_when_selected_by_name(self):
        self.capability = (7, 5)
        assert self.choose() == "torch"
        assert self.choose(choice="triton") == "triton"

    def test_an_amd_gpu_uses_it(self, monkeypatch):
        self.capability = (0, 0)
        monkeypatch.setattr(torch.version, "hip", "6.2")
        assert self.choose() == "triton"

    def test_it_can_be_forbidden(self):
        assert self.choose(choice="torch") == "torch"
        assert self.choose(choice="numba") == "torch"

    @pytest.mark.filterwarnings("error")
    def test_without_the_package_plain_torch_is_used_without_a_warning(
        self, monkeypatch
    ):
        monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda _: None)
        assert self.choose() == "torch"

    def test_a_broken_package_gives_one_warning_and_plain_torch(self, monkeypatch):
        def load():
            raise OSError("libtriton.so")

        broken = Backend("triton", load, devices=("cuda",))
        monkeypatch.setitem(BACKENDS, "triton", broken)
        with pytest.warns(RuntimeWarning, match="triton kernels cannot.*libtriton"):
            assert self.choose() == "torch"
        assert self.choose(dtype=torch.float64) == "torch"

    def test_other_devices_never_use_it(self):
        meta = torch.device("meta")
        assert dispatch._select(
            "stationary", meta, torch.float32, "triton"
        ).backend == ("torch")


class TestSelfCheck:
    """Kernels of plain torch, some of them broken, are checked on the CPU."""

    @pytest.fixture(autouse=True)
    def _sixteen_words(self, monkeypatch):
        case = lambda arguments: min(16, arguments[0].shape[1])  # noqa: E731
        _, trial = self_check._TRIALS["stationary"]
        monkeypatch.setitem(self_check._TRIALS, "stationary", (case, trial))

    def checked(self, forward=None, backward=None):
        plain = BACKENDS["torch"].kernels["stationary"]
        self.calls = []

        def note(function):
            return lambda *args: (self.calls.append(len(args[0])), function(*args))[1]

        kernels = Kernels(
            note(forward or plain.forward), note(backward or plain.backward), "triton"
        )
        return self_check.checked("stationary", kernels, plain)

    def solve(self, kernels, n=5):
        edges, mask = random_edges(4, n, n).float(), torch.ones(4, n).bool()
        weights, factors, plan = kernels.forward(edges, mask, True)
        kernels.backward(torch.ones(4, n), factors, mask, plan)
        return weights

    @pytest.mark.filterwarnings("error")
    def test_kernels_that_agree_are_used_and_checked_once(self):
        kernels = self.checked()
        for _ in range(2):
            self.solve(kernels)
        assert self.calls == [3, 3, 4, 4, 4, 4]  # the check has three texts
        self.solve(kernels, n=7)
        assert self.calls[6:] == [3, 3, 4, 4]

    @pytest.mark.parametrize("problem", ["forward", "backward", "error", "nan"])
    def test_kernels_that_disagree_are_replaced_after_one_warning(self, problem):
        plain = BACKENDS["torch"].kernels["stationary"]

        def wrong_weights(*arguments):
            if problem == "error":
                raise RuntimeError("PTXAS error")
            weights, *others = plain.forward(*arguments)
            weights[:, 1] *= torch.nan if problem == "nan" else 1.1
            return weights, *others

        def wrong_grads(*arguments):
            return 1.01 * plain.backward(*arguments)

        kernels = self.checked(
            wrong_weights if problem != "backward" else None,
            wrong_grads if problem == "backward" else None,
        )
        parts = ("triton", "stationary", "self-check", "issue", "PERRON_KERNELS=torch")
        with pytest.warns(RuntimeWarning, match=mentions(*parts)):
            weights = self.solve(kernels)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.solve(kernels)
            self.solve(kernels, n=7)
        assert set(self.calls) == {3}  # of the check alone
        edges = random_edges(4, 5, 5).float()
        assert torch.equal(weights, plain.forward(edges, None, False)[0])

    def test_the_callers_random_numbers_stay_the_same(self):
        torch.manual_seed(3)
        before = torch.get_rng_state()
        self.solve(self.checked())
        assert torch.equal(torch.get_rng_state(), before)


class TestSynchronization:
    @pytest.mark.parametrize("connectivity", ["mlp", "bilinear", "low_rank"])
    def test_padded_pooling_with_torch_never_waits_for_a_device(self, connectivity):
        pool = CentralityPool(5, connectivity=connectivity)
        states, mask = batch(torch.float32)
        with use("torch"), NoSynchronization() as mode:
            pool(states, mask).vector.sum().backward()
        assert mode.count > 10
        # On the meta device, whatever looks at values is an error.
        states = torch.empty(4, 6, 5, device="meta", requires_grad=True)
        pooled = pool.to("meta")(states, torch.empty(4, 6, device="meta").bool())
        pooled.vector.sum().backward()

    def test_only_masks_in_floating_point_are_read_on_a_gpu(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        with FakeTensorMode():  # has no values, so that reading them is an error
            mask = torch.ones(2, 3, device="cuda:0", dtype=torch.int64)
            assert bool_mask(mask).dtype == torch.bool
            with pytest.raises(RuntimeError):
                bool_mask(mask.float())
            with pytest.raises(RuntimeError):
                bool_mask(mask.cpu())

    @pytest.mark.parametrize(
        "function",
        [
            lambda x: x.sum().item(),
            lambda x: bool(x.any()),
            lambda x: x.nonzero(),
            lambda x: x[x > 0],
            lambda x: x.masked_fill_(x > 0, 0).masked_select(x > 0),
            lambda x: x.unique(),
        ],
    )
    def test_the_guard_notices_what_waits(self, function):
        with pytest.raises(AssertionError, match="waits"), NoSynchronization():
            function(torch.randn(3))


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
        process = run(POOL, PERRON_KERNELS="cuda")
        parts = ("PERRON_KERNELS", "auto, numba, triton, torch", "'cuda'")
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
