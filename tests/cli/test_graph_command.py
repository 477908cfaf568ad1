import io
import json
import shutil
from xml.etree import ElementTree

import networkx
import pytest
from perron_tests.errors import assert_mentions
from perron_tests.pipelines import small_pipeline

import perron as library
from perron.explain import Explanation

TEXT = "the film was lovely"


@pytest.fixture
def other(shared_cache):
    """Return the folder of a model with two heads and without a graph."""
    folder = shared_cache / "other" / "model"
    if not folder.exists():
        small_pipeline("text", "self-attention").save_pretrained(folder)
    return folder


@pytest.fixture
def pairs(shared_cache):
    folder = shared_cache / "small-pairs"
    if not folder.exists():
        small_pipeline("pair", "centrality, l2").save_pretrained(folder)
    return folder


def test_the_terminal_shows_the_words_and_what_they_weigh(perron, model):
    told = perron("graph", model, TEXT)
    assert told.status == 0
    record = library.load(model).explain(TEXT)
    assert told.out.startswith(f"{record.label}  model (bilstm, centrality)")
    weights = zip(record.words[0].nodes, record.words[0].weights, strict=True)
    line = " ".join(f"{word} {100 * share:.0f}" for word, share in weights)
    assert line in told.out
    assert "→" in told.out
    assert "\x1b" not in told.out  # as this is no terminal


FORMATS = ["html", "svg", "png", "json", "graphml", "txt"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_format_follows_from_the_files_name(perron, model, suffix, tmp_path):
    out = tmp_path / f"graph.{suffix.upper()}"
    told = perron("graph", model, TEXT, "--out", out)
    assert (told.status, told.out) == (0, "")
    assert str(out) in told.err
    content = out.read_bytes()
    record = library.load(model).explain(TEXT)
    if suffix == "png":
        assert content.startswith(b"\x89PNG")
    elif suffix == "json":
        assert Explanation.from_json(content) == record
    elif suffix == "svg":
        assert content.decode() == record.to_svg()
    elif suffix == "graphml":
        network = networkx.read_graphml(io.BytesIO(content))
        assert network.nodes["0.3"]["text"] == "lovely"
    else:
        assert b"lovely" in content
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("format", ["html", "svg", "json", "graphml", "terminal"])
def test_without_a_file_it_goes_to_standard_output(perron, model, format):
    told = perron("graph", model, TEXT, "--format", format)
    assert (told.status, told.err) == (0, "")
    assert "lovely" in told.out
    if format in ("svg", "graphml"):
        ElementTree.fromstring(told.out.encode())
    if format == "html":
        assert told.out.startswith("<!DOCTYPE html>")


def test_format_overrules_the_name(perron, model, tmp_path):
    out = tmp_path / "graph.txt"
    assert perron("graph", model, TEXT, "--out", out, "--format", "json").status == 0
    assert Explanation.from_json(out.read_text()).text == TEXT


def records_of(told):
    assert told.status == 0, told.err
    return [Explanation.from_json(line) for line in told.out.splitlines()]


def test_models_stand_side_by_side(perron, model, other):
    found = records_of(perron("graph", model, TEXT, "--with", other, "--format=json"))
    assert [record.model.aggregator for record in found] == [
        "centrality",
        "self-attention",
    ]
    names = [record.model.name for record in found]
    assert names == [f"{model.parent.name}/model", "other/model"]
    told = perron("graph", model, TEXT, "--with", other)
    begin = "".join(told.out.splitlines(keepends=True)[:4])  # a long name wraps
    assert "self-attention" in begin
    assert "centrality" in begin


def test_a_page_has_a_row_for_each_text(perron, model, other, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text('id,review\n1,"lovely, warm film"\n2,a dull day\n3,\n')
    out = tmp_path / "graphs.html"
    options = ["--file", path, "--text", "review", "--with", other, "--out", out]
    assert perron("graph", model, *options).status == 0
    page = out.read_text()
    start = page.index('id="records">') + len('id="records">')
    rows = json.loads(page[start : page.index("</script>", start)])
    texts = [[record["text"] for record in row] for row in rows]
    assert texts == [[text] * 2 for text in ("lovely, warm film", "a dull day", "")]


def test_texts_beyond_the_limit_are_left_out_and_that_is_said(perron, model, tmp_path):
    path = tmp_path / "many.jsonl"
    lines = [json.dumps({"text": f"film {k}"}) for k in range(120)]
    path.write_text("\n".join([*lines, '{"text": 3}']))  # never read
    told = perron("graph", model, "--file", path, "--format", "json")
    assert len(records_of(told)) == 100
    assert_mentions(told.err, "100 texts", "--limit")
    told = perron("graph", model, "--file", path, "--format", "json", "--limit", 2)
    assert [record.text for record in records_of(told)] == ["film 0", "film 1"]
    told = perron("graph", model, "--file", path, "--limit", 200, "--format", "json")
    assert told.status == 1
    assert "many.jsonl, line 121: " in told.err
    told = perron("graph", model, "--file", path, "--limit=200", "--skip-invalid")
    assert told.status == 0
    assert_mentions(told.err, "1 bad row")


@pytest.mark.parametrize("options", [[], ["--file", "-"]])
def test_standard_input_is_read(perron, model, options, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"lovely film\n\ndull\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    found = records_of(perron("graph", model, *options, "--format", "json"))
    assert [record.text for record in found] == ["lovely film", "", "dull"]


def test_texts_that_are_tokenized_are_parted_by_blanks(perron, model):
    for options, words in (
        ([], ["was", "n't", "."]),
        (["--pretokenized"], ["wasn't."]),
    ):
        told = perron("graph", model, "wasn't.", "--format", "json", *options)
        assert records_of(told)[0].words[0].nodes == words


def test_the_second_text_of_a_pair(perron, pairs):
    told = perron("graph", pairs, "a film", "--pair", "the film", "--format", "json")
    (record,) = records_of(told)
    assert (record.text, record.pair) == ("a film", "the film")
    typed = perron("graph", pairs, "a film", "the film", "--format", "json")
    assert records_of(typed) == [record]


def test_one_head_can_be_shown(perron, pairs, tmp_path):
    found = []
    for options in ([], ["--head", 0], ["--head", 1]):
        out = tmp_path / "graph.svg"
        text = ["the film was good", "--pair", "bad film"]
        assert perron("graph", pairs, *text, "--out", out, *options).status == 0
        found.append(out.read_text())
    assert len(set(found)) == 3


def test_a_failed_command_leaves_what_was_there(perron, model, tmp_path):
    out = tmp_path / "graph.svg"
    out.write_text("before")
    told = perron("graph", model, TEXT, "--out", out, "--head", 5)
    assert told.status == 2
    assert_mentions(told.err, "head 5", "head 0")
    assert out.read_text() == "before"


MISUSE = {
    ("nowhere", TEXT): (1, "nowhere"),
    ("MODEL", TEXT, "--with", "nowhere"): (1, "nowhere"),
    ("MODEL", TEXT, "--with", "MODEL"): (2, "MODEL", "twice"),
    ("MODEL", TEXT, "--with", "PAIRS"): (2, "PAIRS", "pairs", "MODEL"),
    ("PAIRS", TEXT, TEXT, "--with", "MODEL"): (2, "PAIRS", "pairs", "MODEL"),
    ("MODEL", TEXT, "--pair", "b"): (2, "--pair", "MODEL", "single texts"),
    ("PAIRS", "--pair", "b"): (2, "--pair", "one text"),
    ("PAIRS", "a"): (2, "texts", "two by two"),
    ("MODEL", TEXT, "--format", "pdf"): (2, "--format", "pdf", "terminal", "html"),
    ("MODEL", TEXT, "--format", "png"): (2, "--format png", "--out"),
    ("MODEL", TEXT, "--out", "a.pdf"): (2, "a.pdf", "--format"),
    ("MODEL", TEXT, "--out", "no/a.png"): (1, "no/a.png", "folder"),
    ("MODEL", TEXT, "--out", "no/a.html"): (1, "no/a.html", "folder"),
    ("MODEL", TEXT, "--out", "-", "--format", "svg"): (2, "--out", "standard output"),
    ("MODEL", "--file", "none.txt"): (2, "no text"),
    ("MODEL", TEXT, "--format", "svg", "--out", "."): (2, "--out .", "folder"),
    ("MODEL", "a", "b", "--out", "a.svg"): (2, "--format svg", 2, 1, "html"),
    ("MODEL", "a", "--with", "OTHER", "--out", "a.png"): (
        2,
        "--format png",
        1,
        2,
        "html",
    ),
    ("MODEL", "a", "b", "--format", "graphml"): (2, "--format graphml", 2, 1, "html"),
    ("MODEL", "--file", "none.txt", "--format", "svg"): (2, "no text"),
    ("MODEL", TEXT, "--head", "1"): (2, "head 1", "head 0"),
    ("MODEL", TEXT, "--head", "0", "--format", "json"): (2, "--head", "json"),
    ("MODEL", TEXT, "--head", "-1"): (2, "'--head'"),
    ("MODEL", TEXT, "--limit", "0"): (2, "'--limit'", 1),
    ("MODEL", TEXT, "--file", "b.csv"): (2, "--file", "both"),
    ("MODEL", "--file", "b.csv"): (1, "b.csv"),
    ("MODEL",): (2, "--file", "standard input"),
}


@pytest.mark.parametrize("arguments", MISUSE, ids=" ".join)
def test_misuse_is_said_without_a_traceback(
    perron, model, other, pairs, arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", Terminal())
    (tmp_path / "none.txt").write_text("")
    folders = {"MODEL": str(model), "OTHER": str(other), "PAIRS": str(pairs)}
    status, *parts = MISUSE[arguments]
    told = perron("graph", *(folders.get(part, part) for part in arguments))
    assert (told.status, "Traceback" in told.err) == (status, False)
    assert_mentions(told.err, *(folders.get(part, part) for part in parts))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["none.txt"]


def test_output_that_cannot_take_the_letters_is_told(perron, model, monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    told = perron("graph", model, TEXT, "--format", "html")
    assert told.status == 1
    assert_mentions(told.err, "standard output", "ascii")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colors_can_be_switched_off(perron, model, monkeypatch):
    from rich.console import Console

    from perron.cli import graph as graph_outputs

    terminals = {}
    for no_color in (False, True):
        file = io.StringIO()
        console = Console(
            file=file, force_terminal=True, color_system="truecolor", no_color=no_color
        )
        monkeypatch.setattr(graph_outputs, "results", console)
        assert perron("graph", model, TEXT).status == 0
        terminals[no_color] = file.getvalue()
    assert "48;2;" in terminals[False]
    assert "48;2;" not in terminals[True]


def test_names_are_short_however_the_folder_is_written(perron, model, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    told = perron("graph", f"{tmp_path}/copy/", TEXT, "--format", "json")
    assert records_of(told)[0].model.name == "copy"
