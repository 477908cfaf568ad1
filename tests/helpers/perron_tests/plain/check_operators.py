"""Run `torch.library.opcheck` on the operators, with the selected kernels."""

import torch

from perron.kernels import selected
from perron.pooling import pair_scores
from perron.solver import direct

torch.manual_seed(0)
mask = torch.rand(9, 4) < 0.7
for dtype in (torch.float32, torch.float64):
    edges = (0.05 + torch.rand(9, 4, 4)).to(dtype)
    for keep_factors in (True, False):
        torch.library.opcheck(direct.stationary_op, (edges, mask, keep_factors))
    leaf = edges.clone().requires_grad_()
    torch.library.opcheck(direct.stationary_op, (leaf, mask, True))
    _, factors = direct.stationary_op(edges, mask, True)
    grad = torch.rand(9, 4).to(dtype)
    torch.library.opcheck(direct.stationary_backward_op, (grad, factors, mask))

x, w = torch.randn(36, 2, 2, 5), torch.randn(2, 5)
strided = x.transpose(1, 2).contiguous().transpose(1, 2)
for rows in (x, strided):
    leaves = (rows.clone(memory_format=torch.preserve_format), w.clone())
    leaves = tuple(leaf.requires_grad_() for leaf in leaves)
    torch.library.opcheck(pair_scores.pair_scores_op, (*leaves, mask, "tanh"))
    grad = torch.rand(9, 2, 4, 4)
    torch.library.opcheck(
        pair_scores.pair_scores_backward_op, (grad, rows, w, mask, "relu")
    )
print(*{*selected(x).values()}, "checked")
