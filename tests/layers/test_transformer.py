import math

import pytest
import torch
from perron_tests.errors import mentions

from perron.layers import TransformerEncoder
from perron.layers.encoders import _positions


def test_order_of_the_words_matters():
    encoder = TransformerEncoder(6, 8, num_layers=1, num_heads=2).eval()
    words = torch.randn(1, 4, 6)
    turned = encoder(words.flip(1)).flip(1)
    assert (turned - encoder(words)).abs().max() > 0.01


def test_the_same_word_at_two_places_has_two_states():
    encoder = TransformerEncoder(6, 8, num_layers=1, num_heads=2).eval()
    first, second = encoder(torch.ones(1, 2, 6))[0]
    assert (first - second).abs().max() > 0.01


@pytest.mark.parametrize("width", [2, 8])
def test_positions_are_sines_then_cosines(width):
    want = torch.zeros(5, width)
    for place in range(5):
        for pair in range(width // 2):
            angle = place / 10_000 ** (2 * pair / width)
            want[place, pair] = math.sin(angle)
            want[place, width // 2 + pair] = math.cos(angle)
    torch.testing.assert_close(_positions(torch.zeros(1, 5, width)), want)


def test_far_positions_survive_half_precision():
    states = torch.zeros(1, 3000, 8)
    half = _positions(states.bfloat16())
    torch.testing.assert_close(half, _positions(states).bfloat16())


def test_dropout_only_in_training():
    encoder = TransformerEncoder(6, 8, num_layers=1, num_heads=2, dropout=0.5)
    words = torch.randn(1, 4, 6)
    assert not torch.equal(encoder(words), encoder(words))
    encoder.eval()
    assert torch.equal(encoder(words), encoder(words))


@pytest.mark.parametrize(("hidden_dim", "num_heads"), [(9, 3), (8, 3)])
def test_a_width_that_cannot_be_parted_is_refused(hidden_dim, num_heads):
    with pytest.raises(
        ValueError, match=mentions("hidden_dim", "num_heads", hidden_dim, num_heads)
    ):
        TransformerEncoder(6, hidden_dim, num_heads=num_heads)
