import ast
import subprocess
import sys
from collections.abc import Container, Iterable
from pathlib import Path

import pytest

import perron

SRC = Path(perron.__file__).parent

MAY_IMPORT = {
    "kernels": set(),
    "solver": {"kernels"},
    "pooling": {"kernels", "solver"},
    "layers": set(),
    "models": {"layers", "pooling"},
    "text": {"kernels"},
    "explain": {"text", "models", "pooling"},
    "training": {"text", "layers", "models", "pipeline", "hub"},
    "experiments": {"text", "pooling", "models", "training"},
    "serve": {"explain", "pipeline"},
    "integrations": {
        "solver",
        "pooling",
        "layers",
        "text",
        "models",
        "explain",
        "pipeline",
        "training",
    },
    "cli": {
        "kernels",
        "pooling",
        "layers",
        "text",
        "models",
        "training",
        "experiments",
        "explain",
        "pipeline",
        "serve",
        "integrations",
    },
}
ANYONE = {"arguments", "errors", "files", "migrations", "registry"}


def imported_packages(source: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {n.split(".")[1] for n in names if n.startswith("perron.")}


def packages() -> list[str]:
    return sorted(path.parent.name for path in SRC.glob("*/__init__.py"))


MOST_FILES = 130
MOST_LINES = 400  # of a file
FEWEST_LINES = 80  # of a file that one other file imports
SMALL = {"perron.text.datasets"}


def modules() -> dict[str, ast.Module]:
    """Return every module of the package by its name."""
    found = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


MODULES = modules()


def imports(nodes: Iterable[ast.AST], known: Container[str]) -> set[str]:
    """Return the known modules that import statements name."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else node.module for name in inside}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name in known}


def lines_of(name: str) -> int:
    path = SRC.parent.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(file.read_text(encoding="utf-8").splitlines())


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a cycle, the first one twice; or nothing."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph[name]):
            if cycle := visit(other, [*path, name]):
                return cycle
        done.add(name)
        return []

    return next(filter(None, (visit(name, []) for name in graph)), [])


def test_modules_do_not_import_each_other_in_a_circle():
    graph = {name: imports(tree.body, MODULES) for name, tree in MODULES.items()}
    cycle = find_cycle(graph)
    assert not cycle, f"{' imports '.join(cycle)}: import inside a function, or merge"


def test_a_circle_would_be_found():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_the_package_has_few_files():
    assert len(MODULES) <= MOST_FILES, (
        f"{len(MODULES)} files, at most {MOST_FILES}: put new code into the file of "
        "its concept, or merge two files that are read together"
    )


def test_no_file_is_long():
    long = {name: lines for name in MODULES if (lines := lines_of(name)) > MOST_LINES}
    assert not long, f"{long}: at most {MOST_LINES} lines. Is it about two concepts?"


def test_no_small_file_has_a_single_importer():
    importers: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, tree in MODULES.items():
        for other in imports(ast.walk(tree), MODULES):
            importers[other].add(name)
    parents = {name.rpartition(".")[0] for name in MODULES}
    small = {
        name: min(found)
        for name, found in importers.items()
        if len(found) == 1 and name not in parents and lines_of(name) < FEWEST_LINES
    }
    extra = {name: own for name, own in small.items() if name not in SMALL}
    assert not extra, f"{extra}: below {FEWEST_LINES} lines, merge into the importer"


def test_no_two_classes_share_a_name():
    owners: dict[str, str] = {}
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                other = owners.setdefault(node.name, name)
                assert other == name, f"{node.name} is in {other} and in {name}"


@pytest.mark.parametrize("package", packages())
def test_imports_point_one_way(package):
    for path in (SRC / package).rglob("*.py"):
        extra = imported_packages(path.read_text()) - MAY_IMPORT[package]
        extra -= {package} | ANYONE
        assert not extra, f"{path.relative_to(SRC)} must not import {extra}"


def test_the_test_sees_both_kinds_of_import():
    source = "import perron.serve.app\nfrom perron.cli import main\n"
    assert imported_packages(source) == {"serve", "cli"}


def imported_by(code: str) -> set[str]:
    """Return the packages that some code imports, beyond those of torch."""
    code = (
        "import sys, torch; before = set(sys.modules); "
        + code
        + ("; print(*sorted({n.split('.')[0] for n in set(sys.modules) - before}))")
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_import_perron_imports_nothing_heavy():
    new = imported_by("import perron")
    assert "perron" in new
    assert not new & {"numba", "llvmlite", "scipy", "rich", "pandas", "matplotlib"}


def test_the_command_line_starts_without_the_libraries_of_its_commands():
    new = imported_by("import perron.cli.app")
    assert {"perron", "typer"} <= new
    heavy = {"accelerate", "datasets", "huggingface_hub", "numba", "pandas", "pyarrow"}
    heavy |= {
        "pydantic",
        "safetensors",
        "sklearn",
        "starlette",
        "tokenizers",
        "uvicorn",
    }
    assert not new & heavy
