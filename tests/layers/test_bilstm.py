import pytest
import torch
from perron_tests.errors import mentions
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from perron.layers import BiLSTMEncoder


def torch_twin(
    encoder: BiLSTMEncoder, dim: int, hidden_dim: int, layers: int
) -> nn.LSTM:
    """Torch's own bidirectional network with the same weights."""
    twin = nn.LSTM(dim, hidden_dim, layers, batch_first=True, bidirectional=True)
    weights = {}
    for depth in range(layers):
        for name, weight in encoder.forward_layers[depth].named_parameters():
            weights[name.replace("l0", f"l{depth}")] = weight.detach()
        for name, weight in encoder.backward_layers[depth].named_parameters():
            weights[name.replace("l0", f"l{depth}_reverse")] = weight.detach()
    twin.load_state_dict(weights)
    return twin


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_equals_packed_sequences_of_torch(layers):
    encoder = BiLSTMEncoder(5, hidden_dim=4, num_layers=layers)
    twin = torch_twin(encoder, 5, 4, layers)
    lengths = [3, 1, 6, 2]
    texts = torch.randn(12, 5).split(lengths)
    padded = pad_sequence(texts, batch_first=True)
    packed = pack_padded_sequence(
        padded, torch.tensor(lengths), batch_first=True, enforce_sorted=False
    )
    want, _ = pad_packed_sequence(twin(packed)[0], batch_first=True)
    mask = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
    torch.testing.assert_close(encoder(padded, mask)[mask], want[mask])
    flat = encoder(torch.cat(texts), lengths=lengths)
    torch.testing.assert_close(flat, want[mask])


def test_dropout_lies_between_layers_and_only_in_training():
    words = torch.randn(1, 4, 5)
    one = BiLSTMEncoder(5, 4, num_layers=1, dropout=0.9)
    assert torch.equal(one(words), one(words))
    two = BiLSTMEncoder(5, 4, num_layers=2, dropout=0.9)
    assert not torch.equal(two(words), two(words))
    two.eval()
    assert torch.equal(two(words), two(words))


def test_no_layers_are_refused():
    with pytest.raises(ValueError, match=mentions("num_layers", 1, 0)):
        BiLSTMEncoder(5, num_layers=0)
