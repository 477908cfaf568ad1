"""The interpreter for PTX computes what a GPU would, and finds planted faults."""

import re

import numpy as np
import pytest
import torch
from perron_tests import ptx
from perron_tests.ptx_instructions import Fault
from perron_tests.triton import DEVICE, triton_kernels

THREADS = 64  # two warps

# Thread t loads x[t], exchanges it with a thread of the other warp through shared
# memory, and stores the sum of both.
EXCHANGE = """
.visible .entry exchange(
	.param .u64 .ptr .global .align 1 exchange_param_0,
	.param .u64 .ptr .global .align 1 exchange_param_1,
	.param .u32 exchange_param_2
)
{
	ld.param.b64 	%rd1, [exchange_param_0];
	ld.param.b64 	%rd2, [exchange_param_1];
	ld.param.b32 	%r1, [exchange_param_2];
	mov.u32 	%r2, %tid.x;
	setp.lt.s32 	%p1, %r2, %r1;
	mad.wide.s32 	%rd3, %r2, 4, %rd1;
	mad.wide.s32 	%rd4, %r2, 4, %rd2;
	mov.b32 	%r3, 0;
	@%p1 ld.global.b32 	{ %r3 }, [ %rd3 + 0 ];
	shl.b32 	%r4, %r2, 2;
	xor.b32 	%r5, %r4, 128;
	st.shared.b32 	[ %r4 + 0 ], { %r3 };
	bar.sync 	0;
	ld.shared.b32 	%r6, [%r5];
	add.f32 	%r7, %r3, %r6;
	@%p1 st.global.b32 	[ %rd4 + 0 ], { %r7 };
	ret;
}
"""


def launch(code, x, n=None, shared=4 * THREADS, is_defined=True, out_size=None):
    """Return the output of a kernel that reads x and writes an array."""
    data = x.view(np.uint8)
    out = np.zeros(4 * len(x) if out_size is None else out_size, np.uint8)
    ptx.run(
        code,
        (1,),
        THREADS,
        shared,
        [
            (data, np.full(len(data), is_defined)),
            (out, np.zeros(len(out), bool)),
            np.int32(len(x) if n is None else n),
        ],
    )
    return out.view(x.dtype)


X = np.arange(THREADS, dtype=np.float32)


def test_threads_exchange_values_through_shared_memory():
    np.testing.assert_array_equal(launch(EXCHANGE, X), X + np.roll(X, THREADS // 2))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bar.sync 	0;\n", "\n", "race: reads what another thread writes"),
        ("[ %r4 + 0 ], { %r3 }", "[ 0 ], { %r3 }", "race: two threads write"),
        ("[ %rd4 + 0 ]", "[ %rd4 + 4 ]", "out of bounds: bytes 256 to 260 of 256"),
        ("[ %rd4 + 0 ]", "[ %rd4 + 2 ]", "not a multiple"),
        ("[ %rd3 + 0 ]", "[ %rd4 + 0 ]", "reads memory that was never written"),
        ("[%r5]", "[%r5+4]", "out of bounds"),
        ("%r3, %r6", "%r3, %r8", "register %r8"),
        ("	bar.sync", "	@%p2 bra $L1;\n	bar.sync", "register %p2"),
        ("	bar.sync", "	setp.lt.s32 %p2, %r2, 9;\n	@%p2 bra $L1;\n	bar.sync",
         "not reached by all"),
        ("	add.f32", "	st.shared.b32 [%r4], %r6;\n	add.f32",
         "race: writes what another thread reads"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_reported_with_its_line(old, new, message):
    code = EXCHANGE.replace(old, new).replace("	ret;", "$L1:\n	ret;")
    assert code.count(new) >= 1
    with pytest.raises(Fault, match=re.escape(message)):
        launch(code, X)


def test_bounds_and_definedness_are_those_of_the_arrays():
    with pytest.raises(Fault, match="out of bounds"):
        launch(EXCHANGE, X[:40].copy(), n=41)
    with pytest.raises(Fault, match="out of bounds"):
        launch(EXCHANGE, X, shared=4 * THREADS - 4)
    with pytest.raises(Fault, match="never written"):
        launch(EXCHANGE, X, is_defined=False)
    launch(EXCHANGE, X[:40].copy())


def test_an_unknown_instruction_is_not_ignored():
    with pytest.raises(NotImplementedError, match="sqrt"):
        launch(EXCHANGE.replace("add.f32", "sqrt.rn.f32"), X)


def compute(lines, x, dtype=np.float32):
    """Return %r9 after some instructions on %r3 = x[t] and %r2 = t."""
    code = EXCHANGE.replace("	add.f32 	%r7, %r3, %r6;", lines)
    return launch(code.replace("{ %r7 }", "{ %r9 }"), x.view(np.float32)).view(dtype)


INTEGERS = np.array([-(2**31), -7, -1, 0, 1, 6, 255, 2**31 - 1] * 8, np.int32)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("shl.b32 %r9, %r3, 3;", INTEGERS << 3),
        ("shl.b32 %r9, %r3, 32;", 0 * INTEGERS),
        ("shr.s32 %r9, %r3, 40;", np.where(INTEGERS < 0, -1, 0)),
        ("bfe.s32 %r9, %r3, 0, 8;", INTEGERS.astype(np.int8)),
        ("bfe.u32 %r9, %r3, 4, 2;", (INTEGERS >> 4) & 3),
        ("div.s32 %r9, %r3, 4;", (INTEGERS / 4).astype(int)),
        ("mul.lo.s32 %r9, %r3, %r3;", (INTEGERS.astype(int) ** 2).astype(np.int32)),
        ("neg.s32 %r9, %r3;", np.negative(INTEGERS)),
        ("min.u32 %r9, %r3, 9;", np.minimum(INTEGERS.view(np.uint32), 9)),
        ("redux.sync.max.s32 %r9, %r3, -1;", np.full(64, 2**31 - 1)),
        ("shfl.sync.bfly.b32 %r9, %r3, 1, 31, -1;",
         INTEGERS.reshape(-1, 2)[:, ::-1].ravel()),
        ("shfl.sync.idx.b32 %r9, %r3, 5, 31, -1;", np.full(64, 6)),
        ("mov.b64 %rd9, {%r2, %r3};\nmov.b64 {_, %r9}, %rd9;", INTEGERS),
        ("cvt.s64.s32 %rd9, %r3;\nshr.s64 %rd9, %rd9, 33;\ncvt.u32.u64 %r9, %rd9;",
         np.where(INTEGERS < 0, -1, 0)),
        ("setp.gt.u32 %p9, %r3, 9;\nselp.b32 %r9, 5, %r3, %p9;",
         np.where(INTEGERS.view(np.uint32) > 9, 5, INTEGERS)),
    ],
)  # fmt: skip
def test_integer_instructions(line, expected):
    np.testing.assert_array_equal(compute(line, INTEGERS, np.int32), expected)


TENTH = np.float32(0.1)  # 0f3DCCCCCD
NUMBERS = np.array([0.1, -0.0, 3e38, -3e38, np.inf, np.nan, 1e-40, 2.5] * 8, np.float32)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fma.rn.f32 %r9, %r3, 0f3DCCCCCD, 0fBC23D70B;",
         (NUMBERS * np.float64(TENTH) + np.float32(-0.010000001)).astype("f4")),
        ("max.f32 %r9, %r3, 0f00000000;", np.fmax(NUMBERS, 0)),
        ("mul.f32 %r9, %r3, 0f3F000000;", NUMBERS / 2),
        ("cvt.rzi.s32.f32 %r8, %r3;\ncvt.rn.f32.s32 %r9, %r8;",
         np.float32([0, 0, 2**31, -(2**31), 2**31, 0, 0, 2] * 8)),
        ("setp.num.f32 %p9, %r3, %r3;\nselp.f32 %r9, %r3, 0f3F800000, %p9;",
         np.nan_to_num(NUMBERS, nan=1, posinf=np.inf)),
        ("setp.ltu.f32 %p9, %r3, 0f00000000;\nselp.f32 %r9, 0f3F800000, %r3, %p9;",
         np.where((NUMBERS < 0) | np.isnan(NUMBERS), np.float32(1), NUMBERS)),
    ],
)  # fmt: skip
def test_floating_point_instructions(line, expected):
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(compute(line, NUMBERS), expected)


# The compiled kernels, in the process of the Triton tests.

compiled = pytest.mark.skipif(DEVICE != "ptx", reason="runs in test_triton.py")


def solve(n):
    edges = (3 * torch.randn(2, n, n)).softmax(-2)
    mask = torch.ones(2, n, dtype=torch.bool)
    kernels = triton_kernels("stationary")
    _, factors, _ = kernels.forward(edges, mask, True)
    kernels.backward(torch.randn(2, n), factors, mask)


def score(n):
    x, w = torch.randn(n, 2, 1, 3), torch.randn(1, 3)
    mask = torch.ones(1, n, dtype=torch.bool)
    kernels = triton_kernels("pair_scores")
    grad = kernels.forward(x, w, mask, "tanh")
    kernels.backward(grad, x, w, mask, "tanh")


def plant(monkeypatch, kernel, old, new, which=None):
    """Change the code of a kernel, in all places or in one of them."""
    from perron_tests import ptx_launch

    def edit(text):
        if f".entry {kernel}(" not in text:
            return text
        places = list(re.finditer(old, text))
        if which is not None:
            places = [places[which]]
        changed = text
        for place in reversed(places):
            changed = (
                changed[: place.start()] + place.expand(new) + changed[place.end() :]
            )
        assert changed != text
        return changed

    monkeypatch.setattr(ptx_launch, "edit", edit)


BARRIER = r"\tbar\.(warp\.)?sync[^;]*;"


@compiled
@pytest.mark.parametrize(
    ("kernel", "call", "n"),
    [
        ("solve_short", solve, 20),
        ("adjoint_short", solve, 5),
        ("solve_short", solve, 33),
        ("adjoint_short", solve, 33),
        ("prepare", solve, 65),
        ("update_panel", solve, 65),
        ("solve_long", solve, 65),
        ("adjoint_long", solve, 65),
        ("grads_kernel", score, 5),
    ],
)
def test_a_missing_barrier_in_a_compiled_kernel_is_a_race(kernel, call, n, monkeypatch):
    plant(monkeypatch, kernel, BARRIER, "")
    with pytest.raises(Fault, match="race"):
        call(n)


@compiled
@pytest.mark.parametrize(
    ("kernel", "call", "n", "which"),
    [
        *(("adjoint_short", solve, 5, which) for which in (0, 1)),
        *(("adjoint_short", solve, 33, which) for which in (0, 33, 66)),
        *(("prepare", solve, 65, which) for which in (0, 2, 4)),
        *(("update_panel", solve, 65, which) for which in (0, 5, 11)),
        *(("grads_kernel", score, 5, which) for which in (0, 1, 2)),
    ],
)
def test_one_missing_barrier_is_a_race(kernel, call, n, which, monkeypatch):
    plant(monkeypatch, kernel, BARRIER, "", which)
    with pytest.raises(Fault, match="race"):
        call(n)


@compiled
@pytest.mark.parametrize(
    ("kernel", "call", "n"),
    [
        ("solve_short", solve, 5),
        ("adjoint_short", solve, 5),
        ("prepare", solve, 65),
        ("factor_panel", solve, 65),
        ("update_panel", solve, 65),
        ("solve_long", solve, 65),
        ("adjoint_long", solve, 65),
        ("edge_grads", solve, 65),
        ("scores_kernel", score, 5),
        ("grads_kernel", score, 5),
    ],
)
@pytest.mark.parametrize("operation", ["ld", "st"])
def test_a_shifted_address_in_a_compiled_kernel_is_out_of_bounds(
    kernel, call, n, operation, monkeypatch
):
    old = rf"({operation}\.global\.b\d+ [^;]*\[[^]]*\+) \d+"
    plant(monkeypatch, kernel, old, r"\1 1048576")
    with pytest.raises(Fault, match="out of bounds"):
        call(n)
