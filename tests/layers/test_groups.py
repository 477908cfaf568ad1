from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from perron.layers.encoders import _TakeOrZero, group_by_length, take

LENGTHS = st.lists(st.integers(0, 40), max_size=25)


def cells_of_groups(groups):
    """Return the words of each group as (texts, words), -1 for padding."""
    parts = groups.words.split([texts * width for texts, width in groups.shapes])
    shaped = zip(parts, groups.shapes, strict=True)
    return [part.reshape(shape) for part, shape in shaped]


def rows_of_texts(lengths):
    """Return the words of each text that has some, by its first word."""
    ends = list(accumulate(lengths))
    pairs = zip(ends, lengths, strict=True)
    return {end - size: list(range(end - size, end)) for end, size in pairs if size}


def test_three_texts_by_hand():
    groups = group_by_length(
        [1, 0, 10, 9]
    )  # 9 of 10: a tenth of the last row is padding
    assert groups.shapes == [(2, 10), (1, 1)]
    assert [part.tolist() for part in groups.lengths] == [[10, 9], [1]]
    words = [*range(1, 11), *range(11, 20), -1, 0]
    assert groups.words.tolist() == words
    assert groups.cells.tolist() == [20, *range(0, 19)]


@settings(deadline=None, max_examples=200)
@given(LENGTHS)
def test_every_word_has_one_cell_and_every_cell_its_word(lengths):
    groups = group_by_length(lengths)
    total = sum(lengths)
    assert groups.cells.shape == (total,)
    assert len(groups.words) == sum(texts * width for texts, width in groups.shapes)
    assert groups.words[groups.cells].tolist() == list(range(total))
    held = groups.words[groups.words >= 0]
    assert sorted(held.tolist()) == list(range(total))
    assert groups.cells[held].tolist() == (groups.words >= 0).nonzero()[:, 0].tolist()


@settings(deadline=None, max_examples=200)
@given(LENGTHS)
def test_a_row_of_a_group_is_a_text_in_its_order_and_then_padding(lengths):
    groups = group_by_length(lengths)
    texts = rows_of_texts(lengths)
    seen = 0
    for part, sizes in zip(cells_of_groups(groups), groups.lengths, strict=True):
        for row, size in zip(part.tolist(), sizes.tolist(), strict=True):
            assert row == texts[row[0]] + [-1] * (len(row) - size)
            seen += 1
    assert seen == len(texts)


@settings(deadline=None, max_examples=200)
@given(LENGTHS, st.sampled_from([0.0, 0.1, 0.5]))
def test_no_group_has_more_padding_than_allowed(lengths, max_padding):
    groups = group_by_length(lengths, max_padding)
    for (texts, width), sizes in zip(groups.shapes, groups.lengths, strict=True):
        assert texts == len(sizes)
        assert width == sizes.max()
        cells = texts * width
        assert cells - int(sizes.sum()) <= max_padding * cells + 1e-9


@settings(deadline=None)
@given(LENGTHS, st.randoms(use_true_random=False))
def test_order_of_the_texts_does_not_change_the_groups(lengths, rng):
    mixed = rng.sample(lengths, len(lengths))
    assert group_by_length(mixed).shapes == group_by_length(lengths).shapes


def test_like_lengths_share_a_group():
    assert group_by_length([20] * 8 + [19] * 8).shapes == [(16, 20)]


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_no_words_make_no_groups(lengths):
    groups = group_by_length(lengths)
    assert groups.shapes == []
    assert groups.lengths == []
    assert len(groups.cells) == len(groups.words) == 0


class TestTake:
    rows = torch.arange(8.0, dtype=torch.float64).reshape(4, 2)
    index = torch.tensor([2, -1, 0, 3, -1])  # row 1 goes nowhere
    inverse = torch.tensor([2, -1, 0, 3])

    def test_is_indexing_with_zeros_for_what_is_not_there(self):
        taken = take(self.rows, self.index, self.inverse)
        want = torch.tensor([[4, 5], [0, 0], [0, 1], [6, 7], [0, 0]]).double()
        assert torch.equal(taken, want)

    def test_gradient_is_that_of_indexing(self):
        slope = torch.randn(5, 2, dtype=torch.float64)
        rows = self.rows.clone().requires_grad_()
        take(rows, self.index, self.inverse).backward(slope)
        plain = self.rows.clone().requires_grad_()
        kept = self.index >= 0
        plain[self.index[kept]].backward(slope[kept])
        assert torch.equal(rows.grad, plain.grad)

    def test_first_and_second_derivatives(self):
        rows = self.rows.clone().requires_grad_()

        def squared(rows):
            return take(rows, self.index, self.inverse).square()

        assert gradcheck(squared, (rows,))
        assert gradgradcheck(squared, (rows,))

    def test_gradcheck_notices_a_wrong_backward(self):
        class Wrong(_TakeOrZero):
            @staticmethod
            def backward(ctx, gradient):
                return 1.01 * _TakeOrZero.backward(ctx, gradient)[0], None, None

        arguments = (self.rows.clone().requires_grad_(), self.index, self.inverse)
        assert not gradcheck(Wrong.apply, arguments, raise_exception=False)

    @pytest.mark.parametrize(("here", "there"), [(0, 3), (3, 0), (0, 0)])
    def test_no_rows_and_no_places(self, here, there):
        rows = torch.ones(here, 2, requires_grad=True)
        index, inverse = torch.full((there,), -1), torch.full((here,), -1)
        taken = take(rows, index, inverse)
        taken.sum().backward()
        assert torch.equal(taken, torch.zeros(there, 2))
        assert torch.equal(rows.grad, torch.zeros(here, 2))

    def test_rows_are_left_alone_even_where_all_go_their_own_way(self):
        rows = torch.ones(2, 2)
        take(rows, torch.tensor([0, -1]), torch.tensor([0, -1]))
        assert torch.equal(rows, torch.ones(2, 2))
