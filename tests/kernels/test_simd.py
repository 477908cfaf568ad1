"""SIMD vectors agree with NumPy."""

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from perron.kernels.simd import (
    any_less,
    load,
    splat,
    store,
    transpose,
    where_less,
    widen,
)

RNG = np.random.default_rng(0)


@pytest.fixture(params=["float32", "float64"])
def numbers(request):
    return lambda size: RNG.random(size).astype(request.param)


def test_arithmetic_is_elementwise(numbers):
    x, y, out = numbers(12), numbers(30), numbers(8)

    @njit
    def kernel(x, y, out):
        a, b = load(x, 3), load(y, 17)
        store(out, 0, (a + b) * a / b - b)

    kernel(x, y, out)
    a, b = x[3:11], y[17:25]
    np.testing.assert_allclose(out, (a + b) * a / b - b, rtol=1e-5, atol=1e-6)


def test_every_operator_has_an_in_place_form(numbers):
    x, out = numbers(8), numbers(8)

    @njit
    def kernel(x, out):
        value = load(x, 0)
        value += value
        value *= value
        value -= load(x, 0)
        value /= load(x, 0)
        store(out, 0, value)

    kernel(x, out)
    np.testing.assert_allclose(out, 4 * x - 1, rtol=1e-5, atol=1e-6)


def test_store_writes_exactly_eight_numbers(numbers):
    x = numbers(20)
    want = x.copy()
    want[5:13] = 3
    njit(lambda x: store(x, 5, splat(3.0)))(x)
    np.testing.assert_array_equal(x, want)


def test_sums_in_a_loop_are_accumulated_in_float64(numbers):
    p, total = numbers(99), np.ones(8)

    @njit
    def kernel(p, total):
        running = load(total, 0)
        for k in range(6):
            running += widen(load(p, 4 + 11 * k))
        store(total, 0, running)

    kernel(p, total)
    rows = np.stack([p[4 + 11 * k : 12 + 11 * k] for k in range(6)]).astype(float)
    np.testing.assert_allclose(total, 1 + rows.sum(0), rtol=1e-14)


def test_mixed_precisions_raise_an_error():
    @njit
    def kernel(x, y):
        return any_less(load(x, 0) + load(y, 0), load(x, 0))

    with pytest.raises(TypingError):
        kernel(np.ones(8), np.ones(8, np.float32))


def test_where_less_selects_per_lane_and_nan_is_not_less(numbers):
    a, b, out = numbers(8), numbers(8), numbers(8)
    a[2] = np.nan

    @njit
    def kernel(a, b, out):
        x, y = load(a, 0), load(b, 0)
        store(out, 0, where_less(x, y, x, y))

    kernel(a, b, out)
    np.testing.assert_array_equal(out, np.where(a < b, a, b))


@pytest.mark.parametrize("lane", range(8))
def test_any_less_checks_every_lane(numbers, lane):
    a, b = numbers(8), np.zeros(8)
    b = b.astype(a.dtype)
    kernel = njit(lambda a, b: any_less(load(a, 0), load(b, 0)))
    assert not kernel(a, b)
    b[lane] = 2
    assert kernel(a, b)


def test_transpose_of_an_8_by_8_tile(numbers):
    x, y = numbers(300), numbers(80)
    offsets = np.array([0, 9, 20, 33, 40, 77, 100, 200])
    want = np.stack([x[p + 5 : p + 13] for p in offsets], axis=1)
    njit(lambda y, x, p: transpose(y, 3, x, p, 5))(y, x, offsets)
    np.testing.assert_array_equal(y[3:67].reshape(8, 8), want)
