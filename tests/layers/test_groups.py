from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from perron.layers.encoders import _GatherOrZero, gather_or_zero, group_by_length

LENGTHS = st.lists(st.integers(0, 40), max_size=25)


def tokens_by_group(groups):
    """Return the token indices of each group, (texts, length), -1 for padding."""
    parts = groups.cell_to_token.split(
        [texts * width for texts, width in groups.shapes]
    )
    shaped = zip(parts, groups.shapes, strict=True)
    return [part.reshape(shape) for part, shape in shaped]


def tokens_by_text(lengths):
    """Return the token indices of each nonempty text, keyed by the first one."""
    ends = list(accumulate(lengths))
    pairs = zip(ends, lengths, strict=True)
    return {end - size: list(range(end - size, end)) for end, size in pairs if size}


def test_groups_of_four_texts_are_as_expected():
    groups = group_by_length([1, 0, 10, 9])  # 1 of 20 cells is padding
    assert groups.shapes == [(2, 10), (1, 1)]
    assert [part.tolist() for part in groups.lengths] == [[10, 9], [1]]
    tokens = [*range(1, 11), *range(11, 20), -1, 0]
    assert groups.cell_to_token.tolist() == tokens
    assert groups.token_to_cell.tolist() == [20, *range(0, 19)]


@settings(deadline=None, max_examples=200)
@given(LENGTHS)
def test_every_token_has_exactly_one_cell(lengths):
    groups = group_by_length(lengths)
    total = sum(lengths)
    assert groups.token_to_cell.shape == (total,)
    assert len(groups.cell_to_token) == sum(
        texts * width for texts, width in groups.shapes
    )
    assert groups.cell_to_token[groups.token_to_cell].tolist() == list(range(total))
    filled = groups.cell_to_token[groups.cell_to_token >= 0]
    assert sorted(filled.tolist()) == list(range(total))
    assert (
        groups.token_to_cell[filled].tolist()
        == (groups.cell_to_token >= 0).nonzero()[:, 0].tolist()
    )


@settings(deadline=None, max_examples=200)
@given(LENGTHS)
def test_each_row_of_a_group_is_one_text_followed_by_padding(lengths):
    groups = group_by_length(lengths)
    texts = tokens_by_text(lengths)
    count = 0
    for part, sizes in zip(tokens_by_group(groups), groups.lengths, strict=True):
        for row, size in zip(part.tolist(), sizes.tolist(), strict=True):
            assert row == texts[row[0]] + [-1] * (len(row) - size)
            count += 1
    assert count == len(texts)


@settings(deadline=None, max_examples=200)
@given(LENGTHS, st.sampled_from([0.0, 0.1, 0.5]))
def test_no_group_has_more_padding_than_allowed(lengths, max_padding):
    groups = group_by_length(lengths, max_padding)
    for (texts, length), sizes in zip(groups.shapes, groups.lengths, strict=True):
        assert texts == len(sizes)
        assert length == sizes.max()
        cells = texts * length
        assert cells - int(sizes.sum()) <= max_padding * cells + 1e-9


@settings(deadline=None)
@given(LENGTHS, st.randoms(use_true_random=False))
def test_order_of_the_texts_does_not_change_the_groups(lengths, rng):
    mixed = rng.sample(lengths, len(lengths))
    assert group_by_length(mixed).shapes == group_by_length(lengths).shapes


def test_texts_of_similar_length_share_a_group():
    assert group_by_length([20] * 8 + [19] * 8).shapes == [(16, 20)]


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_without_tokens_there_are_no_groups(lengths):
    groups = group_by_length(lengths)
    assert groups.shapes == []
    assert groups.lengths == []
    assert len(groups.token_to_cell) == len(groups.cell_to_token) == 0


class TestGatherOrZero:
    rows = torch.arange(8.0, dtype=torch.float64).reshape(4, 2)
    index = torch.tensor([2, -1, 0, 3, -1])  # row 1 is not used
    inverse = torch.tensor([2, -1, 0, 3])

    def test_index_minus_1_gives_zeros(self):
        gathered = gather_or_zero(self.rows, self.index, self.inverse)
        want = torch.tensor([[4, 5], [0, 0], [0, 1], [6, 7], [0, 0]]).double()
        assert torch.equal(gathered, want)

    def test_gradient_equals_that_of_indexing(self):
        grad = torch.randn(5, 2, dtype=torch.float64)
        rows = self.rows.clone().requires_grad_()
        gather_or_zero(rows, self.index, self.inverse).backward(grad)
        plain = self.rows.clone().requires_grad_()
        is_used = self.index >= 0
        plain[self.index[is_used]].backward(grad[is_used])
        assert torch.equal(rows.grad, plain.grad)

    def test_first_and_second_derivatives_are_correct(self):
        rows = self.rows.clone().requires_grad_()

        def squared(rows):
            return gather_or_zero(rows, self.index, self.inverse).square()

        assert gradcheck(squared, (rows,))
        assert gradgradcheck(squared, (rows,))

    def test_gradcheck_detects_a_wrong_backward(self):
        class Wrong(_GatherOrZero):
            @staticmethod
            def backward(ctx, grad):
                return 1.01 * _GatherOrZero.backward(ctx, grad)[0], None, None

        arguments = (self.rows.clone().requires_grad_(), self.index, self.inverse)
        assert not gradcheck(Wrong.apply, arguments, raise_exception=False)

    @pytest.mark.parametrize(("num_rows", "num_outputs"), [(0, 3), (3, 0), (0, 0)])
    def test_rows_and_index_may_be_empty(self, num_rows, num_outputs):
        rows = torch.ones(num_rows, 2, requires_grad=True)
        index = torch.full((num_outputs,), -1)
        inverse = torch.full((num_rows,), -1)
        gathered = gather_or_zero(rows, index, inverse)
        gathered.sum().backward()
        assert torch.equal(gathered, torch.zeros(num_outputs, 2))
        assert torch.equal(rows.grad, torch.zeros(num_rows, 2))

    def test_input_rows_are_not_modified(self):
        rows = torch.ones(2, 2)
        gather_or_zero(rows, torch.tensor([0, -1]), torch.tensor([0, -1]))
        assert torch.equal(rows, torch.ones(2, 2))
