import pytest

from perron.files import csv_bytes, format_p_value, markdown_table


def test_rows_become_markdown_and_csv():
    rows = [["a|b", "1"], ["c", "2, 3"]]
    assert markdown_table(["x", "y"], rows) == (
        "| x | y |\n| --- | --- |\n| a\\|b | 1 |\n| c | 2, 3 |"
    )
    assert csv_bytes([["x", "y"], *rows]) == b'x,y\na|b,1\nc,"2, 3"\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (1.0, "1.000"), (0.0104, "0.010"), (0.001, "0.001")],
)
def test_a_p_value_has_three_digits(value, text):
    assert format_p_value(value) == text


def test_a_small_p_value_is_not_shown_as_zero():
    assert format_p_value(0.0001) == "< 0.001"
    assert format_p_value(0.00099) == "< 0.001"
