import pytest
import torch

from perron.layers import CNNEncoder


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8])
def test_equals_a_loop_over_words(width):
    """A filter sees (width - 1) // 2 words before, the rest after; beyond are zeros."""
    encoder = CNNEncoder(3, kernel_sizes=(width,), num_filters=2).double()
    words = torch.randn(5, 3, dtype=torch.float64)
    weight, bias = encoder.convolutions[0].weight, encoder.convolutions[0].bias
    want = torch.zeros(5, 2, dtype=torch.float64)
    for place in range(5):
        for output in range(2):
            total = bias[output]
            for step in range(width):
                seen = place - (width - 1) // 2 + step
                if 0 <= seen < 5:
                    total = total + (weight[output, :, step] * words[seen]).sum()
            want[place, output] = max(total, 0)
    torch.testing.assert_close(encoder(words.unsqueeze(0))[0], want)
    torch.testing.assert_close(encoder(words, lengths=[5]), want)


def test_widths_stand_side_by_side():
    encoder = CNNEncoder(3, kernel_sizes=(3, 4), num_filters=2)
    alone = CNNEncoder(3, kernel_sizes=(4,), num_filters=2)
    alone.convolutions[0].load_state_dict(encoder.convolutions[1].state_dict())
    words = torch.randn(2, 6, 3)
    assert encoder.out_dim == 4
    torch.testing.assert_close(encoder(words)[..., 2:], alone(words))
