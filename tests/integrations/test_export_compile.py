"""`torch.compile` on complete models, and the traceable LSTM."""

import pytest
import torch
from perron_tests.models import AGGREGATORS, ENCODERS, KINDS
from perron_tests.plain import run_plain
from torch import nn

from perron.layers.basic import TraceableLSTM, lstm_op


def test_complete_models_compile_once_for_all_lengths():
    cases = ["text,centrality,bilstm", "document,self-attention,none"]
    assert run_plain("compile_models.py", "eager", *cases).count("compiled") == 2


@pytest.mark.slow
def test_every_model_compiles_once_for_all_lengths():
    count = len(KINDS) * len(AGGREGATORS) + len(ENCODERS)
    assert run_plain("compile_models.py", "aot_eager").count("compiled") == count


@pytest.mark.slow
def test_inductor_compiles_models_once_for_all_lengths():
    cases = ["text,centrality,bilstm", "pair,max,cnn", "document,dynamic-routing,none"]
    assert run_plain("compile_models.py", "inductor", *cases).count("compiled") == 3


@pytest.mark.slow
def test_a_compiled_model_has_the_gradients_of_an_eager_one():
    assert "same gradients" in run_plain("compile_training.py")


def test_the_traceable_lstm_matches_torch():
    ours = TraceableLSTM(4, 3).double()
    theirs = nn.LSTM(4, 3, batch_first=True).double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    weights = list(ours.parameters())
    expected = theirs(x)[0]
    torch.testing.assert_close(ours(x), expected)
    torch.testing.assert_close(lstm_op(x, *weights), expected)

    grad = torch.randn_like(expected)
    expected = torch.autograd.grad(expected, [x, *theirs.parameters()], grad)
    actual = torch.autograd.grad(lstm_op(x, *weights), [x, *weights], grad)
    torch.testing.assert_close(actual, expected)


def test_the_lstm_operator_passes_opcheck():
    x = torch.randn(2, 5, 4, requires_grad=True)
    torch.library.opcheck(lstm_op, (x, *TraceableLSTM(4, 3).parameters()))


def test_initial_weights_match_torch():
    torch.manual_seed(1)
    ours = TraceableLSTM(4, 3).state_dict()
    torch.manual_seed(1)
    torch.testing.assert_close(ours, nn.LSTM(4, 3, batch_first=True).state_dict())
