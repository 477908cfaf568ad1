from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.text.datasets import load_data
from perron.text.sampling import shuffled, split_at_random, split_by_class
from perron.text.settings import DataSettings

USUAL = (0.8, 0.1, 0.1)


def test_twenty_rows_by_hand():
    labels = np.array([0, 1] * 10)
    train, dev, test = split_by_class(labels, range(20), USUAL)
    assert (list(test), list(dev)) == ([0, 1], [2, 3])
    assert list(train) == [*range(4, 20, 2), *range(5, 20, 2)]


fractions = st.tuples(
    st.integers(1, 20), st.integers(1, 20), st.one_of(st.just(0), st.integers(1, 20))
).map(lambda parts: tuple(part / sum(parts) for part in parts))


@settings(deadline=None, max_examples=200)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=8),
    parts=fractions,
    seed=st.integers(0, 99),
)
def test_every_class_with_three_rows_is_in_each_part(sizes, parts, seed):
    sizes = [*sizes, 3]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = shuffled(len(labels), seed)
    found = split_by_class(labels, order, parts)
    assert sorted(row for rows in found for row in rows) == list(range(len(labels)))
    for rows, fraction in zip(found, parts, strict=True):
        counts = Counter(labels[list(rows)].tolist())
        for label, size in enumerate(sizes):
            if fraction == 0:
                assert counts[label] == 0
            elif size >= 3:
                assert counts[label] >= 1


@pytest.mark.parametrize("sizes", [[500, 500], [990, 10], [14] * 50, [333, 333, 334]])
def test_parts_have_the_same_sizes_as_without_classes(sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = shuffled(len(labels), 0)
    by_class = split_by_class(labels, order, USUAL)
    at_random = split_at_random(order, USUAL)
    assert [len(part) for part in by_class] == [len(part) for part in at_random]


def test_shares_of_the_classes_are_those_of_the_file():
    labels = np.repeat([0, 1, 2], [700, 250, 50])
    for part in split_by_class(labels, shuffled(1000, 5), USUAL):
        shares = np.bincount(labels[list(part)]) / len(part)
        np.testing.assert_allclose(shares, [0.7, 0.25, 0.05], atol=1e-9)


def test_small_classes_are_trained_on():
    labels = np.array([0] * 30 + [1] * 2 + [2])
    train, _, _ = split_by_class(labels, shuffled(33, 0), USUAL)
    assert {30, 31, 32} <= set(train)


def test_rows_that_all_differ_are_split_at_random():
    order = shuffled(20, 0)
    labels = np.arange(20)
    assert split_by_class(labels, order, USUAL) == split_at_random(order, USUAL)


@pytest.fixture
def lopsided(write):
    """A file of 100 rows, three of which are of the rare class."""
    rows = [f"{'rare' if i % 40 == 7 else 'usual'} text {i}\n" for i in range(100)]
    return str(write("a.txt", "".join(rows)))


def test_a_file_is_split_by_class_unless_told_otherwise(lopsided):
    def rare(**options):
        given = DataSettings(format="lines", train=lopsided, **options)
        splits = load_data(given)
        parts = (splits.train, splits.dev, splits.test)
        return [part["label"][:].count(0) for part in parts]

    seeds = range(5)
    assert all(rare(split_seed=seed) == [1, 1, 1] for seed in seeds)
    assert any(rare(split_seed=seed, stratify=False)[2] == 0 for seed in seeds)


def test_without_classes_the_split_is_what_it_was_in_version_1(write):
    rows = "".join(f"{i % 2} text number {i}\n" for i in range(20))
    path = str(write("a.txt", rows))
    splits = load_data(DataSettings(format="lines", train=path, stratify=False))
    # By sha256("0:0"), sha256("0:1"), ...: written down, so that a change is noticed.
    assert splits.test["line"][:] == [16, 19]
    assert splits.dev["line"][:] == [5, 8]
