from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perron.text.datasets import load_data
from perron.text.sampling import random_split, stable_permutation, stratified_split
from perron.text.settings import DataSettings

FRACTIONS = (0.8, 0.1, 0.1)


def test_the_first_rows_of_each_class_become_test_and_dev():
    labels = np.array([0, 1] * 10)
    train, dev, test = stratified_split(labels, range(20), FRACTIONS)
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
def test_every_class_with_three_rows_is_in_each_split(sizes, parts, seed):
    sizes = [*sizes, 3]
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = stable_permutation(len(labels), seed)
    splits = stratified_split(labels, order, parts)
    assert sorted(row for rows in splits for row in rows) == list(range(len(labels)))
    for rows, fraction in zip(splits, parts, strict=True):
        counts = Counter(labels[list(rows)].tolist())
        for label, size in enumerate(sizes):
            if fraction == 0:
                assert counts[label] == 0
            elif size >= 3:
                assert counts[label] >= 1


@pytest.mark.parametrize("sizes", [[500, 500], [990, 10], [14] * 50, [333, 333, 334]])
def test_a_stratified_split_is_as_large_as_a_random_split(sizes):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    order = stable_permutation(len(labels), 0)
    stratified = stratified_split(labels, order, FRACTIONS)
    random = random_split(order, FRACTIONS)
    assert [len(part) for part in stratified] == [len(part) for part in random]


def test_a_stratified_split_preserves_the_class_frequencies():
    labels = np.repeat([0, 1, 2], [700, 250, 50])
    for part in stratified_split(labels, stable_permutation(1000, 5), FRACTIONS):
        frequencies = np.bincount(labels[list(part)]) / len(part)
        np.testing.assert_allclose(frequencies, [0.7, 0.25, 0.05], atol=1e-9)


def test_small_classes_go_to_train():
    labels = np.array([0] * 30 + [1] * 2 + [2])
    train, _, _ = stratified_split(labels, stable_permutation(33, 0), FRACTIONS)
    assert {30, 31, 32} <= set(train)


def test_if_all_labels_differ_the_split_is_random():
    order = stable_permutation(20, 0)
    labels = np.arange(20)
    assert stratified_split(labels, order, FRACTIONS) == random_split(order, FRACTIONS)


@pytest.fixture
def imbalanced(write):
    """A file of 100 rows, three of them in the rare class."""
    rows = [f"{'rare' if i % 40 == 7 else 'usual'} text {i}\n" for i in range(100)]
    return str(write("a.txt", "".join(rows)))


def test_a_file_is_stratified_by_default(imbalanced):
    def rare(**options):
        settings = DataSettings(format="lines", train=imbalanced, **options)
        splits = load_data(settings)
        parts = (splits.train, splits.dev, splits.test)
        return [part["label"][:].count(0) for part in parts]

    seeds = range(5)
    assert all(rare(split_seed=seed) == [1, 1, 1] for seed in seeds)
    assert any(rare(split_seed=seed, stratify=False)[2] == 0 for seed in seeds)


def test_the_random_split_is_the_same_as_in_version_1(write):
    rows = "".join(f"{i % 2} text number {i}\n" for i in range(20))
    path = str(write("a.txt", rows))
    splits = load_data(DataSettings(format="lines", train=path, stratify=False))
    # Sorted by sha256("0:0"), sha256("0:1"), ... Pinned to detect changes.
    assert splits.test["line"][:] == [16, 19]
    assert splits.dev["line"][:] == [5, 8]
