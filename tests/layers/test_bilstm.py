import pytest
import torch
from perron_tests.errors import mentions
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from perron.layers import BiLSTMEncoder


def torch_lstm(
    encoder: BiLSTMEncoder, embed_dim: int, hidden_dim: int, num_layers: int
) -> nn.LSTM:
    """Return an `nn.LSTM` with the weights of the encoder."""
    lstm = nn.LSTM(
        embed_dim, hidden_dim, num_layers, batch_first=True, bidirectional=True
    )
    weights = {}
    for depth in range(num_layers):
        for name, weight in encoder.forward_layers[depth].named_parameters():
            weights[name.replace("l0", f"l{depth}")] = weight.detach()
        for name, weight in encoder.backward_layers[depth].named_parameters():
            weights[name.replace("l0", f"l{depth}_reverse")] = weight.detach()
    lstm.load_state_dict(weights)
    return lstm


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_states_equal_those_of_nn_lstm_with_packed_sequences(num_layers):
    encoder = BiLSTMEncoder(5, hidden_dim=4, num_layers=num_layers)
    lstm = torch_lstm(encoder, 5, 4, num_layers)
    lengths = [3, 1, 6, 2]
    texts = torch.randn(12, 5).split(lengths)
    padded = pad_sequence(texts, batch_first=True)
    packed = pack_padded_sequence(
        padded, torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    want, _ = pad_packed_sequence(lstm(packed)[0], batch_first=True)
    mask = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
    torch.testing.assert_close(encoder(padded, mask)[mask], want[mask])
    flat = encoder(torch.cat(texts), lengths=lengths)
    torch.testing.assert_close(flat, want[mask])


def test_dropout_is_between_layers_and_only_in_training():
    words = torch.randn(1, 4, 5)
    one = BiLSTMEncoder(5, 4, num_layers=1, dropout=0.9)
    assert torch.equal(one(words), one(words))
    two = BiLSTMEncoder(5, 4, num_layers=2, dropout=0.9)
    assert not torch.equal(two(words), two(words))
    two.eval()
    assert torch.equal(two(words), two(words))


def test_zero_layers_raise_an_error():
    with pytest.raises(ValueError, match=mentions("num_layers", 1, 0)):
        BiLSTMEncoder(5, num_layers=0)
