"""docs/results.md agrees with the records."""

import pytest

from papers.gong2019 import write_page as writer
from papers.gong2019.accuracy_tables import CLASSIFICATION, ENTAILMENT
from papers.gong2019.write_page import RESULTS
from perron.experiments.records import read_records

RECORDS = sorted(RESULTS.glob("runs/*/records.jsonl"))
TABLES = {"table3": CLASSIFICATION, "table4": ENTAILMENT}


def test_the_page_matches_the_records():
    """The paper's tables are not compared, since they depend on the data available."""
    text = writer.PAGE.read_text(encoding="utf-8")
    blocks = {block[2]: block[0] for block in writer.BLOCK.finditer(text)}
    assert set(writer.OTHER_STUDIES) <= set(blocks)
    assert set(blocks) <= {*writer.OTHER_STUDIES, *writer.TARGETS}
    for name in writer.OTHER_STUDIES:
        expected = writer.updated_block(writer.BLOCK.search(blocks[name]))
        assert blocks[name] == expected, f"{name}: run write_page.py"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_every_record_is_complete(path):
    records = read_records(path)
    assert records
    assert len({record.command for record in records}) == len(records)
    for record in records:
        assert record.command.startswith("perron train ")
        assert record.command.endswith(f"training.seed={record.seed}")
        assert record.correct_mask().mean() == pytest.approx(record.test["accuracy"])
        assert len(record.data) == 16
        assert not record.commit.endswith("+"), "uncommitted changes"
    assert len({record.test_digest for record in records}) == 1


@pytest.mark.parametrize("table", TABLES)
def test_the_csv_file_of_a_table_contains_all_recorded_runs(table):
    runs = (RESULTS / f"{table}-runs.csv").read_text(encoding="utf-8")
    for path in RECORDS:
        if path.parent.name in TABLES[table]:
            for record in read_records(path):
                assert record.commit in runs
                assert f",{record.test['accuracy']}," in runs
