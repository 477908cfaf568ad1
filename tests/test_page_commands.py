"""The commands in the README and the documentation are valid."""

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec

import pytest
import typer
from perron_tests.pages import (
    PAGES,
    ROOT,
    RUN,
    SHOWN,
    Block,
    parse_commands,
    read_blocks,
)

from perron.cli.app import app
from perron.serve.operations import OPERATIONS
from perron.training import read_recipe, recipe_names, recipe_table

# Blocks that are not run. There should be few, each with a good reason.
SKIPPED = {
    "docs/hugging_face.md": ["fetches a model from the Hub", "writes to the Hub"],
    "docs/scale.md": [
        "starts Ray, as examples/ray_corpus.py does",
        "needs pyspark and Java; examples/spark_udf.py is run by make spark",
    ],
    "docs/training.md": ["a synopsis", "needs a run that was stopped"],
    "docs/tutorials/own_model.md": [
        "compiles for a minute; a test does the same (compile_pools.py)"
    ],
    "docs/tutorials/sentence_embeddings.md": [
        "two more processes that import everything; the tests do it"
    ],
}


def modules_with_doctests():
    """Return the modules with examples in their docstrings."""
    paths = sorted((ROOT / "src").rglob("*.py"))
    return [
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in paths
        if ">>> " in path.read_text(encoding="utf-8")
    ]


def check(words):
    """Check a command without running it."""
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    if "perron" in words[:1]:
        check_perron(words[1:])
    elif "-m" in words and words[words.index("-m") + 1 :][:1] == ["perron"]:
        check_perron(words[words.index("-m") + 2 :])
    elif words[:2] == ["python", "-m"] and words[2].startswith("papers."):
        check_paper(*words[2:])
    elif words[:1] == ["make"]:
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert words[1] in targets
    elif words[:1] == ["curl"]:
        address = next(
            each for each in words[1:] if "/" in each and each[0] not in "{A"
        )
        path = re.sub(r"^(https?://)?[^/]*", "", address)
        routes = (ROOT / "src" / "perron" / "serve" / "routes.py").read_text()
        known = [f"/v1/{operation.name}" for operation in OPERATIONS]
        assert path in known or f'"{path}"' in routes, path
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extras in re.findall(r"\[(.+?)\]", " ".join(words)):
            assert {*extras.split(",")} <= {*project["optional-dependencies"]}
    elif words[:1] == ["python"] and words[1].endswith(".py"):
        assert (ROOT / words[1]).exists()


def problem(words):
    """Return the error of an invalid command, or None if it is valid."""
    try:
        check(words)
    except Exception as error:
        return repr(error)
    return None


def check_perron(words):
    """Parse a perron command without running it."""
    group = typer.main.get_command(app)
    context = group.make_context("perron", list(words))
    rest = [*context._protected_args, *context.args]
    name, command, rest = group.resolve_command(context, rest)
    if hasattr(command, "commands"):
        context = command.make_context(name, rest, parent=context)
        rest = [*context._protected_args, *context.args]
        name, command, rest = command.resolve_command(context, rest)
    options = command.make_context(name, rest, parent=context).params
    if options.get("recipe") in recipe_names() and not options.get("data"):
        read_recipe(recipe_table(options["recipe"]), options.get("set_") or ())


def check_paper(module, *words):
    """Parse the command of a paper; its other modules are scripts without options."""
    spec = find_spec(module)
    assert spec is not None
    if spec.submodule_search_locations:
        paper = import_module(f"{module}.reproduce")
        command = typer.main.get_command(paper.app)
        target = command.make_context(module, list(words)).params["target"]
        assert target in (*paper.TARGETS, paper.ALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_on_a_page_are_valid(page):
    for block in read_blocks(page):
        if block.kind in (*SHOWN, "bash") and not block.skip_reason:
            for words in parse_commands(block):
                assert problem(words) is None, f"{page}:{block.line}: {words}"


@pytest.mark.parametrize(
    "command",
    [
        "perron train --dada reviews.csv",
        "perron trian sst2",
        "perron train sst2 --set training.learning=1",
        "perron serve runs/demo --port many",
        "perron data stat",
        "torchrun --nproc_per_node 2 -m perron train sst2 --fast",
        "make demonstration",
        "curl -s localhost:8000/v2/predict",
        "pip install 'perron[everything]'",
        "python examples/no_such.py",
        "python -m papers.gong2019 table3 --fast",
        "python -m papers.gong2019 table9",
        "python -m papers.nobody2019 table1",
    ],
)
def test_an_invalid_command_is_detected(command):
    (words,) = parse_commands(Block("bash", 1, command))
    assert problem(words) is not None


def test_few_blocks_are_skipped_and_all_have_a_reason():
    skipped = {
        page: [block.skip_reason for block in read_blocks(page) if block.skip_reason]
        for page in PAGES
    }
    assert {page: reasons for page, reasons in skipped.items() if reasons} == SKIPPED


def test_every_skip_comment_belongs_to_a_block():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        skipped = [block for block in read_blocks(page) if block.skip_reason]
        assert text.count("<!-- not run") == len(skipped), page


@pytest.mark.parametrize("module", modules_with_doctests())
def test_the_examples_in_docstrings_are_correct(module, tmp_path):
    """Runs in a new process, without the runtime type checker of the test run."""
    code = f"import doctest, {module}; assert not doctest.testmod({module}).failed"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_pages_are_parsed_correctly():
    kinds = {block.kind for page in PAGES for block in read_blocks(page)}
    assert {*RUN, "indented", "text"} <= kinds
    assert "" not in kinds, "a fenced block must have a language"
    tutorial = read_blocks("docs/tutorials/own_csv.md")
    assert tutorial[0].code.startswith("import csv")
    assert "228" in tutorial[1].expected_output
    assert read_blocks("docs/training.md")[0].skip_reason == "a synopsis"
