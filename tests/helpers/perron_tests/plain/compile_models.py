"""Compile classifiers to one graph for all lengths, and compare with eager mode.

    python compile_models.py BACKEND KIND,AGGREGATOR,ENCODER ...

By default, all aggregators, kinds and encoders are compiled.
"""

import sys

import torch

from perron_tests.models import AGGREGATORS, ENCODERS, KINDS, small_model

BACKEND, *MODELS = sys.argv[1:]
CASES = [model.split(",") for model in MODELS] or [
    *((kind, name, "bilstm") for kind in KINDS for name in AGGREGATORS),
    *(("text", "mean", name) for name in ENCODERS),
]


def padded(kind, batch, words):
    """Return a padded batch of random lengths, whose first text has no words."""
    inputs = {}
    for side in ("", "pair_") if kind == "pair" else ("",):
        words += len(side)  # make the second texts longer
        shape = (batch, 7, words) if kind == "document" else (batch, words)
        lengths = torch.randint(words + 1, shape[:-1])
        lengths[0] = 0
        inputs[f"{side}ids"] = torch.randint(12, shape)
        inputs[f"{side}mask"] = torch.arange(words) < lengths.unsqueeze(-1)
    return inputs


torch._dynamo.config.error_on_recompile = True  # one graph for all lengths
for kind, aggregator, encoder in CASES:
    torch.compiler.reset()
    torch.manual_seed(0)
    model = small_model(kind, aggregator, encoder).requires_grad_(False)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=BACKEND)
    for batch, words in [(3, 6), (5, 9), (2, 40), (4, 2)]:
        inputs = padded(kind, batch, words)
        with torch.no_grad():
            got, want = compiled(**inputs), model(**inputs)
        torch.testing.assert_close(got.logits, want.logits)
        torch.testing.assert_close(got.vector, want.vector)
    print("compiled", kind, aggregator, encoder)
