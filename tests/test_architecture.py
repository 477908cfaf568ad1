import ast
import subprocess
import sys
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
    "recipes": set(),
    "training": {"text", "layers", "models", "pipeline", "model_card"},
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
ANYONE = {"arguments", "errors", "files", "migrations", "registry", "tables"}


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
