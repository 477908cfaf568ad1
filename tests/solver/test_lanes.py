"""Each vector instruction does what the same lines of NumPy do."""

import numpy as np
import pytest
from numba import njit

from perron.solver import lanes

RNG = np.random.default_rng(0)


def view(x: np.ndarray, start: int, step: int, count: int) -> np.ndarray:
    """x @ start, step as rows of eight."""
    return np.stack([x[start + step * v : start + step * v + 8] for v in range(count)])


@pytest.fixture(params=["float32", "float64"])
def numbers(request):
    return lambda size: RNG.random(size).astype(request.param)


def test_add_multiples(numbers):
    y, x, c = numbers(90), numbers(90), numbers(20)
    want = view(y, 3, 16, 5) + c[7:15] * view(x, 2, 9, 5)
    call = njit(lambda y, x, c: lanes.add_multiples(y, 3, 16, x, 2, 9, c, 7, 5))
    call(y, x, c)
    np.testing.assert_allclose(view(y, 3, 16, 5), want, rtol=1e-6)


def test_add_two_multiples(numbers):
    y = numbers(200)
    want = (
        view(y, 0, 8, 4)
        + y[100:108] * view(y, 40, 8, 4)
        + y[110:118] * view(y, 75, 8, 4)
    )
    njit(lambda y: lanes.add_two_multiples(y, 0, 100, 40, 110, 75, 4))(y)
    np.testing.assert_allclose(view(y, 0, 8, 4), want, rtol=1e-6)


def test_add_products_widens_to_the_precision_of_the_result(numbers):
    y, p, q = np.ones(10), numbers(99), numbers(99)
    want = 1 + (view(p, 4, 11, 6).astype(float) * view(q, 1, 8, 6)).sum(0)
    call = njit(lambda y, p, q: lanes.add_products(y, 2, p, 4, 11, q, 1, 8, 6))
    call(y, p, q)
    np.testing.assert_allclose(y[2:], want, rtol=1e-14)
    assert (y[:2] == 1).all()


def test_add_products_off(numbers):
    y, p, near = np.zeros(8), numbers(99), RNG.random(8)
    u, rest = RNG.random(48), RNG.random(48)
    off = (view(u, 0, 8, 6) - near) + view(rest, 0, 8, 6)
    want = (view(p, 4, 11, 6) * off).sum(0)
    call = njit(lambda *a: lanes.add_products_off(a[0], a[1], 4, 11, *a[2:], 6))
    call(y, p, u, rest, near)
    np.testing.assert_allclose(y, want, rtol=1e-13)


def test_add_up_sums_and_finds_the_least(numbers):
    x = numbers(80)
    x[16] = -2
    total, least = np.ones(8), np.zeros(8, x.dtype)
    njit(lambda t, m, x: lanes.add_up(t, m, x, 0, 8, 10))(total, least, x)
    np.testing.assert_allclose(total, 1 + x.reshape(10, 8).sum(0, dtype=float))
    assert least.tolist() == [-2, 0, 0, 0, 0, 0, 0, 0]


def test_multiply_and_scale_up(numbers):
    y, c, d = numbers(90), numbers(8), numbers(8)
    want = view(y, 1, 10, 4) * c
    njit(lambda y, c: lanes.multiply(y, 1, 10, c, 0, 4))(y, c)
    np.testing.assert_allclose(view(y, 1, 10, 4), want, rtol=1e-6)
    y[20] = np.nan
    low = np.full(8, 0.2, y.dtype)
    want = view(y, 4, 8, 5) * c * d
    want = np.where(want < low, low, want)
    njit(lambda y, c, d, low: lanes.scale_up(y, 4, c, d, low, 5))(y, c, d, low)
    np.testing.assert_allclose(view(y, 4, 8, 5), want, rtol=1e-6)
    assert np.isnan(y[20])


def test_turn_transposes_eight_by_eight(numbers):
    x, y = numbers(300), numbers(80)
    places = np.array([0, 9, 20, 33, 40, 77, 100, 200])
    want = np.stack([x[p + 5 : p + 13] for p in places], axis=1)
    njit(lambda y, x, p: lanes.turn(y, 3, x, p, 5))(y, x, places)
    np.testing.assert_array_equal(view(y, 3, 8, 8), want)
