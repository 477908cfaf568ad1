import math

import pytest
import torch
from perron_tests.errors import mentions

from perron.layers import TransformerEncoder
from perron.layers.encoders import _positional_encoding


def test_word_order_changes_the_states():
    encoder = TransformerEncoder(6, 8, num_layers=1, num_heads=2).eval()
    words = torch.randn(1, 4, 6)
    reverse = encoder(words.flip(1)).flip(1)
    assert (reverse - encoder(words)).abs().max() > 0.01


def test_a_repeated_word_has_different_states():
    encoder = TransformerEncoder(6, 8, num_layers=1, num_heads=2).eval()
    first, second = encoder(torch.ones(1, 2, 6))[0]
    assert (first - second).abs().max() > 0.01


@pytest.mark.parametrize("width", [2, 8])
def test_positional_encoding_has_sines_then_cosines(width):
    want = torch.zeros(5, width)
    for position in range(5):
        for pair in range(width // 2):
            angle = position / 10_000 ** (2 * pair / width)
            want[position, pair] = math.sin(angle)
            want[position, width // 2 + pair] = math.cos(angle)
    torch.testing.assert_close(_positional_encoding(torch.zeros(1, 5, width)), want)


def test_positions_are_computed_in_full_precision():
    states = torch.zeros(1, 3000, 8)
    half = _positional_encoding(states.bfloat16())
    torch.testing.assert_close(half, _positional_encoding(states).bfloat16())


def test_dropout_is_only_on_in_training():
    encoder = TransformerEncoder(6, 8, num_layers=1, num_heads=2, dropout=0.5)
    words = torch.randn(1, 4, 6)
    assert not torch.equal(encoder(words), encoder(words))
    encoder.eval()
    assert torch.equal(encoder(words), encoder(words))


@pytest.mark.parametrize(("hidden_dim", "num_heads"), [(9, 3), (8, 3)])
def test_invalid_hidden_dims_raise_an_error(hidden_dim, num_heads):
    with pytest.raises(
        ValueError, match=mentions("hidden_dim", "num_heads", hidden_dim, num_heads)
    ):
        TransformerEncoder(6, hidden_dim, num_heads=num_heads)
