import pytest

from perron.files import csv_bytes, markdown_table, p_value_text


def test_rows_become_markdown_and_csv():
    rows = [["a|b", "1"], ["c", "2, 3"]]
    assert markdown_table(["x", "y"], rows) == (
        "| x | y |\n| --- | --- |\n| a\\|b | 1 |\n| c | 2, 3 |"
    )
    assert csv_bytes([["x", "y"], *rows]) == b'x,y\na|b,1\nc,"2, 3"\n'


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, ""), (1.0, "1.000"), (0.0104, "0.010"), (0.001, "0.001")],
)
def test_a_p_value_has_three_digits(value, told):
    assert p_value_text(value) == told


def test_no_p_value_is_told_as_nought():
    assert p_value_text(0.0001) == "< 0.001"
    assert p_value_text(0.00099) == "< 0.001"
