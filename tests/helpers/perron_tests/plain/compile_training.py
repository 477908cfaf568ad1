"""Compare the gradients of a compiled classifier with those of an eager one."""

import torch

from perron_tests.models import batches, small_model

model = small_model("text", "centrality", "bilstm")
_, inputs = batches("text")
compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")


def slopes(run):
    model.zero_grad()
    run(**inputs).logits.square().sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


torch.testing.assert_close(slopes(compiled), slopes(model))
print("same gradients")
