import ast
import subprocess
import sys
from collections.abc import Container, Iterable
from pathlib import Path

import pytest
from perron_tests.pipelines import small_pipeline

import perron

SRC = Path(perron.__file__).parent

MAY_IMPORT = {
    "kernels": set(),
    "solver": {"kernels"},
    "pooling": {"kernels", "solver"},
    "layers": {"kernels"},
    "models": {"layers", "pooling"},
    "text": {"kernels"},
    "explain": {"text", "models", "pooling"},
    "training": {"kernels", "text", "layers", "models", "pipeline", "hub"},
    "experiments": {"text", "pooling", "models", "training"},
    "serve": {"kernels", "explain", "pipeline"},
    "integrations": {
        "kernels",
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
# Modules that every package may import.
SHARED = {
    "arguments",
    "errors",
    "files",
    "migration_steps",
    "migrations",
    "registry",
}


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


MAX_FILES = 130
MAX_LINES = 400  # of a file
MIN_LINES = 80  # of a file with a single importer
SMALL_FILES = {"perron.text.datasets"}


def modules() -> dict[str, ast.Module]:
    """Return the syntax tree of every module of the package, by name."""
    trees = {}
    for path in sorted(SRC.rglob("*.py")):
        parts = path.relative_to(SRC.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        trees[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return trees


MODULES = modules()


def imports(nodes: Iterable[ast.AST], known: Container[str]) -> set[str]:
    """Return the known modules that are imported by some nodes."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            names |= {name if name in known else node.module for name in members}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name in known}


def count_lines(name: str) -> int:
    path = SRC.parent.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return len(file.read_text(encoding="utf-8").splitlines())


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of a cycle, starting and ending with the same one, or []."""
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


def test_there_are_no_import_cycles():
    graph = {name: imports(tree.body, MODULES) for name, tree in MODULES.items()}
    cycle = find_cycle(graph)
    assert not cycle, f"{' imports '.join(cycle)}. Import in a function, or merge."


def test_import_cycles_are_detected():
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_the_package_has_few_files():
    assert len(MODULES) <= MAX_FILES, (
        f"must have at most {MAX_FILES} files, got {len(MODULES)}. Add new code to an "
        "existing file, or merge two files that belong together."
    )


def test_no_file_is_long():
    long = {name: lines for name in MODULES if (lines := count_lines(name)) > MAX_LINES}
    assert not long, f"must have at most {MAX_LINES} lines, got {long}. Split it."


def test_no_small_file_has_a_single_importer():
    importers: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, tree in MODULES.items():
        for other in imports(ast.walk(tree), MODULES):
            importers[other].add(name)
    parents = {name.rpartition(".")[0] for name in MODULES}
    small = {
        name: min(users)
        for name, users in importers.items()
        if len(users) == 1 and name not in parents and count_lines(name) < MIN_LINES
    }
    extra = {name: user for name, user in small.items() if name not in SMALL_FILES}
    assert not extra, f"{extra}: less than {MIN_LINES} lines. Merge with the importer."


def test_no_two_classes_share_a_name():
    owners: dict[str, str] = {}
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                other = owners.setdefault(node.name, name)
                assert other == name, f"{node.name} is in {other} and in {name}"


@pytest.mark.parametrize("package", packages())
def test_packages_import_only_lower_layers(package):
    for path in (SRC / package).rglob("*.py"):
        extra = imported_packages(path.read_text()) - MAY_IMPORT[package]
        extra -= {package} | SHARED
        assert not extra, f"{path.relative_to(SRC)} must not import {extra}"


def test_both_kinds_of_import_are_detected():
    source = "import perron.serve.app\nfrom perron.cli import main\n"
    assert imported_packages(source) == {"serve", "cli"}


def imported_by(code: str) -> set[str]:
    """Return the packages that some code imports, except those torch imports."""
    code = (
        "import sys, torch; before = set(sys.modules); "
        + code
        + ("; print(*sorted({n.split('.')[0] for n in set(sys.modules) - before}))")
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_perron_imports_no_heavy_packages():
    packages = imported_by("import perron")
    assert "perron" in packages
    assert not packages & {"numba", "llvmlite", "scipy", "rich", "pandas", "matplotlib"}


def test_classifying_a_text_imports_no_heavy_packages(tmp_path):
    """`perron predict` starts nearly as fast as `import torch`."""
    small_pipeline("text").save_pretrained(tmp_path)
    command = ["predict", str(tmp_path), "a film"]
    packages = imported_by(
        f"from perron.cli.app import app; app({command}, standalone_mode=False)"
    )
    assert {"perron", "tokenizers", "pydantic"} <= packages
    heavy = {"accelerate", "datasets", "huggingface_hub", "llvmlite", "matplotlib"}
    heavy |= {"numba", "pandas", "pyarrow", "scipy", "sklearn", "spacy", "starlette"}
    heavy |= {"transformers"}
    assert not packages & heavy


def test_the_command_line_imports_no_heavy_packages():
    packages = imported_by("import perron.cli.app")
    assert {"perron", "typer"} <= packages
    heavy = {"accelerate", "datasets", "huggingface_hub", "numba", "pandas", "pyarrow"}
    heavy |= {
        "pydantic",
        "safetensors",
        "sklearn",
        "starlette",
        "tokenizers",
        "uvicorn",
    }
    assert not packages & heavy
