"""Flat states: what says where a text ends, and what is refused."""

import pytest
import torch

from perron import MeanPool, SelfAttentionPool

STATES = torch.arange(10.0).view(5, 2)


def test_lengths_and_offsets_say_the_same_by_hand():
    want = torch.tensor([[1.0, 2.0], [0.0, 0.0], [6.0, 7.0]])
    pool = MeanPool(2)
    for given in ([2, 0, 3], torch.tensor([2, 0, 3]), torch.tensor([2, 0, 3]).int()):
        torch.testing.assert_close(pool(STATES, lengths=given).vector, want)
    for given in ([0, 2, 2, 5], torch.tensor([0, 2, 2, 5], dtype=torch.int32)):
        torch.testing.assert_close(pool(STATES, offsets=given).vector, want)


def test_weights_are_flat_too():
    pooled = SelfAttentionPool(2, queries=3)(STATES, lengths=[2, 0, 3])
    assert pooled.weights.shape == (5,)
    assert pooled.head_weights.shape == (3, 5)
    torch.testing.assert_close(pooled.weights[2:].sum(), torch.tensor(1.0))


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_no_words_at_all(lengths):
    pooled = SelfAttentionPool(2)(STATES[:0], lengths=lengths)
    assert pooled.vector.shape == (len(lengths), 2)
    assert (pooled.vector == 0).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lengths": [2, 2]}, "lengths make 4 words, but states have 5 rows"),
        ({"lengths": [7, -2]}, "lengths must not be negative, but do so at text 1"),
        (
            {"lengths": torch.tensor([2.0, 3.0])},
            "lengths must be whole numbers.*float32",
        ),
        ({"lengths": torch.tensor([[2, 3]])}, r"on one axis.*\(1, 2\)"),
        ({"lengths": torch.tensor([5 + 0j])}, "lengths must be whole numbers"),
        ({"lengths": [2**63 - 1, 2**63 - 1, 7]}, "words, but states have 5 rows"),
        ({"offsets": [0, 2]}, "offsets make 2 words, but states have 5 rows"),
        ({"offsets": [1, 5]}, "offsets must begin with 0"),
        ({"offsets": []}, "offsets must begin with 0"),
        ({"offsets": [0, 6, 5]}, "offsets must not decrease, but do so at text 1"),
        ({"lengths": [5], "offsets": [0, 5]}, "lengths or offsets, not both"),
        ({"lengths": [5], "mask": torch.ones(5).bool()}, "leave out the mask"),
    ],
)
def test_what_does_not_fit_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        MeanPool(2)(STATES, **given)


def test_flat_states_of_the_wrong_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(M, 2\), but came as \(1, 5, 2\); padded"):
        MeanPool(2)(STATES.unsqueeze(0), lengths=[5])
