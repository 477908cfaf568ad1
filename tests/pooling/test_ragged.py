"""Ragged states with lengths or offsets."""

import pytest
import torch
from perron_tests.errors import mentions

from perron import MeanPool, SelfAttentionPool

STATES = torch.arange(10.0).view(5, 2)


def test_lengths_and_offsets_are_equivalent():
    want = torch.tensor([[1.0, 2.0], [0.0, 0.0], [6.0, 7.0]])
    pool = MeanPool(2)
    for lengths in ([2, 0, 3], torch.tensor([2, 0, 3]), torch.tensor([2, 0, 3]).int()):
        torch.testing.assert_close(pool(STATES, lengths=lengths).vector, want)
    for offsets in ([0, 2, 2, 5], torch.tensor([0, 2, 2, 5], dtype=torch.int32)):
        torch.testing.assert_close(pool(STATES, offsets=offsets).vector, want)


def test_weights_are_ragged_too():
    pooled = SelfAttentionPool(2, num_queries=3)(STATES, lengths=[2, 0, 3])
    assert pooled.weights.shape == (5,)
    assert pooled.head_weights.shape == (3, 5)
    torch.testing.assert_close(pooled.weights[2:].sum(), torch.tensor(1.0))


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_batches_without_words_work(lengths):
    pooled = SelfAttentionPool(2)(STATES[:0], lengths=lengths)
    assert pooled.vector.shape == (len(lengths), 2)
    assert (pooled.vector == 0).all()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"lengths": [2, 2]}, ["lengths", 4, "states", 5]),
        ({"lengths": [7, -2]}, ["lengths", 0, -2, "text 1"]),
        ({"lengths": torch.tensor([2.0, 3.0])}, ["lengths", "float32"]),
        ({"lengths": torch.tensor([[2, 3]])}, ["lengths", (1, 2)]),
        ({"lengths": torch.tensor([5 + 0j])}, ["lengths", "complex64"]),
        ({"lengths": [2**63 - 1, 2**63 - 1, 7]}, ["lengths", "states", 5]),
        ({"offsets": [0, 2]}, ["offsets", 2, "states", 5]),
        ({"offsets": [1, 5]}, ["offsets", 0]),
        ({"offsets": []}, ["offsets", 0]),
        ({"offsets": [0, 6, 5]}, ["offsets", -1, "text 1"]),
        ({"lengths": [5], "offsets": [0, 5]}, ["lengths", "offsets"]),
        ({"lengths": [5], "mask": torch.ones(5).bool()}, ["mask"]),
    ],
)
def test_invalid_lengths_and_offsets_raise_an_error(arguments, parts):
    with pytest.raises(ValueError, match=mentions(*parts)):
        MeanPool(2)(STATES, **arguments)


def test_ragged_states_of_the_wrong_shape_raise_an_error():
    with pytest.raises(ValueError, match=mentions("(M, 2)", (1, 5, 2))):
        MeanPool(2)(STATES.unsqueeze(0), lengths=[5])
