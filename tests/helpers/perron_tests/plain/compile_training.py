"""Compare the gradients of a compiled classifier with those of an eager one."""

import torch

from perron_tests.models import batches, small_model

model = small_model("text", "centrality", "bilstm")
_, inputs = batches("text")
compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")


def gradients(classifier):
    model.zero_grad()
    classifier(**inputs).logits.square().sum().backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters()}


torch.testing.assert_close(gradients(compiled), gradients(model))
print("same gradients")
