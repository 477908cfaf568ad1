"""Compile and export `stationary_distribution`, and compare with eager mode."""

import torch

from perron import stationary_distribution


def solve(scores, mask):
    return stationary_distribution(scores.softmax(-2), mask)


def solve_with_gradient(function, scores, mask):
    leaf = scores.clone().requires_grad_()
    weights = function(leaf, mask)
    weights.square().sum().backward()
    return weights.detach(), leaf.grad


class Solver(torch.nn.Module):
    """`solve` as a module, which torch.export requires."""

    def forward(self, scores, mask):
        return solve(scores, mask)


torch.manual_seed(0)
compiled = torch.compile(solve, fullgraph=True, dynamic=True, backend="aot_eager")
for batch, n in [(9, 5), (3, 12), (20, 7)]:
    scores, mask = torch.randn(batch, n, n), torch.rand(batch, n) < 0.7
    torch.testing.assert_close(
        solve_with_gradient(compiled, scores, mask),
        solve_with_gradient(solve, scores, mask),
    )
print("compiled")

batch, n = torch.export.Dim("batch"), torch.export.Dim("n")
program = torch.export.export(
    Solver(),
    (torch.randn(9, 5, 5), torch.ones(9, 5, dtype=torch.bool)),
    dynamic_shapes=({0: batch, 1: n, 2: n}, {0: batch, 1: n}),
)
scores, mask = torch.randn(4, 8, 8), torch.rand(4, 8) < 0.7
torch.testing.assert_close(program.module()(scores, mask), solve(scores, mask))
leaf = scores.clone().requires_grad_()
program.module()(leaf, mask).square().sum().backward()
torch.testing.assert_close(leaf.grad, solve_with_gradient(solve, scores, mask)[1])
print("exported")
