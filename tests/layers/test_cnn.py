import pytest
import torch

from perron.layers import CNNEncoder


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 4, 5, 8])
def test_states_equal_a_loop_over_words(kernel_size):
    """The input is padded with (kernel_size - 1) // 2 zeros at the front."""
    encoder = CNNEncoder(3, kernel_sizes=(kernel_size,), num_filters=2).double()
    words = torch.randn(5, 3, dtype=torch.float64)
    weight, bias = encoder.convolutions[0].weight, encoder.convolutions[0].bias
    want = torch.zeros(5, 2, dtype=torch.float64)
    for position in range(5):
        for output in range(2):
            total = bias[output]
            for step in range(kernel_size):
                source = position - (kernel_size - 1) // 2 + step
                if 0 <= source < 5:
                    total = total + (weight[output, :, step] * words[source]).sum()
            want[position, output] = max(total, 0)
    torch.testing.assert_close(encoder(words.unsqueeze(0))[0], want)
    torch.testing.assert_close(encoder(words, lengths=[5]), want)


def test_kernel_sizes_are_concatenated():
    encoder = CNNEncoder(3, kernel_sizes=(3, 4), num_filters=2)
    single = CNNEncoder(3, kernel_sizes=(4,), num_filters=2)
    single.convolutions[0].load_state_dict(encoder.convolutions[1].state_dict())
    words = torch.randn(2, 6, 3)
    assert encoder.out_dim == 4
    torch.testing.assert_close(encoder(words)[..., 2:], single(words))
