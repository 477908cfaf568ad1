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
    """Return the folder of a model with two heads but no graph."""
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


def test_the_terminal_shows_the_words_and_their_weights(perron, model):
    outcome = perron("graph", model, TEXT)
    assert outcome.status == 0
    record = library.load(model).explain(TEXT)
    assert outcome.out.startswith(f"{record.label}  model (bilstm, centrality)")
    weights = zip(record.words[0].nodes, record.words[0].weights, strict=True)
    line = " ".join(f"{word} {100 * share:.0f}" for word, share in weights)
    assert line in outcome.out
    assert "→" in outcome.out
    assert "\x1b" not in outcome.out  # standard output is not a terminal


FORMATS = ["html", "svg", "png", "json", "graphml", "txt"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_format_is_inferred_from_the_extension(perron, model, suffix, tmp_path):
    out = tmp_path / f"graph.{suffix.upper()}"
    outcome = perron("graph", model, TEXT, "--out", out)
    assert (outcome.status, outcome.out) == (0, "")
    assert str(out) in outcome.err
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
def test_the_default_output_is_standard_output(perron, model, format):
    outcome = perron("graph", model, TEXT, "--format", format)
    assert (outcome.status, outcome.err) == (0, "")
    assert "lovely" in outcome.out
    if format in ("svg", "graphml"):
        ElementTree.fromstring(outcome.out.encode())
    if format == "html":
        assert outcome.out.startswith("<!DOCTYPE html>")


def test_format_overrides_the_extension(perron, model, tmp_path):
    out = tmp_path / "graph.txt"
    assert perron("graph", model, TEXT, "--out", out, "--format", "json").status == 0
    assert Explanation.from_json(out.read_text()).text == TEXT


def parse_records(outcome):
    assert outcome.status == 0, outcome.err
    return [Explanation.from_json(line) for line in outcome.out.splitlines()]


def test_models_are_shown_side_by_side(perron, model, other):
    outcome = perron("graph", model, TEXT, "--with", other, "--format=json")
    records = parse_records(outcome)
    assert [record.model.aggregator for record in records] == [
        "centrality",
        "self-attention",
    ]
    names = [record.model.name for record in records]
    assert names == [f"{model.parent.name}/model", "other/model"]
    outcome = perron("graph", model, TEXT, "--with", other)
    heading = "".join(outcome.out.splitlines(keepends=True)[:4])  # long names wrap
    assert "self-attention" in heading
    assert "centrality" in heading


def test_a_page_has_one_row_per_text(perron, model, other, tmp_path):
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


def test_texts_beyond_the_limit_are_skipped_with_a_message(perron, model, tmp_path):
    path = tmp_path / "many.jsonl"
    lines = [json.dumps({"text": f"film {k}"}) for k in range(120)]
    path.write_text("\n".join([*lines, '{"text": 3}']))  # never read
    outcome = perron("graph", model, "--file", path, "--format", "json")
    assert len(parse_records(outcome)) == 100
    assert_mentions(outcome.err, "100 texts", "--limit")
    outcome = perron("graph", model, "--file", path, "--format", "json", "--limit", 2)
    assert [record.text for record in parse_records(outcome)] == ["film 0", "film 1"]
    outcome = perron("graph", model, "--file", path, "--limit", 200, "--format", "json")
    assert outcome.status == 1
    assert "many.jsonl, line 121: " in outcome.err
    outcome = perron("graph", model, "--file", path, "--limit=200", "--skip-invalid")
    assert outcome.status == 0
    assert_mentions(outcome.err, "1 invalid row")


@pytest.mark.parametrize("options", [[], ["--file", "-"]])
def test_standard_input_is_read(perron, model, options, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO(b"lovely film\n\ndull\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    records = parse_records(perron("graph", model, *options, "--format", "json"))
    assert [record.text for record in records] == ["lovely film", "", "dull"]


def test_pretokenized_texts_are_split_on_whitespace(perron, model):
    for options, words in (
        ([], ["was", "n't", "."]),
        (["--pretokenized"], ["wasn't."]),
    ):
        outcome = perron("graph", model, "wasn't.", "--format", "json", *options)
        assert parse_records(outcome)[0].words[0].nodes == words


def test_pair_is_the_second_text(perron, pairs):
    outcome = perron("graph", pairs, "a film", "--pair", "the film", "--format", "json")
    (record,) = parse_records(outcome)
    assert (record.text, record.pair) == ("a film", "the film")
    outcome = perron("graph", pairs, "a film", "the film", "--format", "json")
    assert parse_records(outcome) == [record]


def test_a_single_head_can_be_shown(perron, pairs, tmp_path):
    images = set()
    for options in ([], ["--head", 0], ["--head", 1]):
        out = tmp_path / "graph.svg"
        text = ["the film was good", "--pair", "bad film"]
        assert perron("graph", pairs, *text, "--out", out, *options).status == 0
        images.add(out.read_text())
    assert len(images) == 3


def test_a_failed_command_keeps_the_existing_file(perron, model, tmp_path):
    out = tmp_path / "graph.svg"
    out.write_text("before")
    outcome = perron("graph", model, TEXT, "--out", out, "--head", 5)
    assert outcome.status == 2
    assert_mentions(outcome.err, "head 5", "head 0")
    assert out.read_text() == "before"


INVALID_USAGE = {
    ("nowhere", TEXT): (1, "nowhere"),
    ("MODEL", TEXT, "--with", "nowhere"): (1, "nowhere"),
    ("MODEL", TEXT, "--with", "MODEL"): (2, "MODEL", "twice"),
    ("MODEL", TEXT, "--with", "PAIRS"): (2, "PAIRS", "pairs", "MODEL"),
    ("PAIRS", TEXT, TEXT, "--with", "MODEL"): (2, "PAIRS", "pairs", "MODEL"),
    ("MODEL", TEXT, "--pair", "b"): (2, "--pair", "MODEL", "single texts"),
    ("PAIRS", "--pair", "b"): (2, "--pair", "one text"),
    ("PAIRS", "a"): (2, "even number of texts"),
    ("MODEL", TEXT, "--format", "pdf"): (2, "--format", "pdf", "terminal", "html"),
    ("MODEL", TEXT, "--format", "png"): (2, "--format png", "--out"),
    ("MODEL", TEXT, "--out", "a.pdf"): (2, "a.pdf", "--format"),
    ("MODEL", TEXT, "--out", "no/a.png"): (1, "no/a.png", "folder"),
    ("MODEL", TEXT, "--out", "no/a.html"): (1, "no/a.html", "folder"),
    ("MODEL", TEXT, "--out", "-", "--format", "svg"): (2, "--out", "standard output"),
    ("MODEL", "--file", "none.txt"): (2, "no texts"),
    ("MODEL", TEXT, "--format", "svg", "--out", "."): (2, "--out", "folder ."),
    ("MODEL", "a", "b", "--out", "a.svg"): (2, "--format svg", 2, 1, "html"),
    ("MODEL", "a", "--with", "OTHER", "--out", "a.png"): (
        2,
        "--format png",
        1,
        2,
        "html",
    ),
    ("MODEL", "a", "b", "--format", "graphml"): (2, "--format graphml", 2, 1, "html"),
    ("MODEL", "--file", "none.txt", "--format", "svg"): (2, "no texts"),
    ("MODEL", TEXT, "--head", "1"): (2, "head 1", "head 0"),
    ("MODEL", TEXT, "--head", "0", "--format", "json"): (2, "--head", "json"),
    ("MODEL", TEXT, "--head", "-1"): (2, "'--head'"),
    ("MODEL", TEXT, "--limit", "0"): (2, "'--limit'", 1),
    ("MODEL", TEXT, "--file", "b.csv"): (2, "texts", "--file", "exclusive"),
    ("MODEL", "--file", "b.csv"): (1, "b.csv"),
    ("MODEL",): (2, "--file", "standard input"),
}


@pytest.mark.parametrize("arguments", INVALID_USAGE, ids=" ".join)
def test_invalid_usage_is_reported_without_a_traceback(
    perron, model, other, pairs, arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", Terminal())
    (tmp_path / "none.txt").write_text("")
    folders = {"MODEL": str(model), "OTHER": str(other), "PAIRS": str(pairs)}
    status, *parts = INVALID_USAGE[arguments]
    outcome = perron("graph", *(folders.get(part, part) for part in arguments))
    assert (outcome.status, "Traceback" in outcome.err) == (status, False)
    assert_mentions(outcome.err, *(folders.get(part, part) for part in parts))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["none.txt"]


def test_characters_that_standard_output_cannot_encode_are_an_error(
    perron, model, monkeypatch
):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    outcome = perron("graph", model, TEXT, "--format", "html")
    assert outcome.status == 1
    assert_mentions(outcome.err, "standard output", "ascii")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colors_can_be_disabled(perron, model, monkeypatch):
    from rich.console import Console

    from perron.cli import graph as graph_module

    terminals = {}
    for no_color in (False, True):
        file = io.StringIO()
        console = Console(
            file=file, force_terminal=True, color_system="truecolor", no_color=no_color
        )
        monkeypatch.setattr(graph_module, "results", console)
        assert perron("graph", model, TEXT).status == 0
        terminals[no_color] = file.getvalue()
    assert "48;2;" in terminals[False]
    assert "48;2;" not in terminals[True]


def test_a_trailing_slash_does_not_change_the_name_of_a_model(perron, model, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    outcome = perron("graph", f"{tmp_path}/copy/", TEXT, "--format", "json")
    assert parse_records(outcome)[0].model.name == "copy"
