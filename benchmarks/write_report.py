"""Write docs/benchmarks.md and its figure from the measurements of the benchmarks.

    python benchmarks/write_report.py FOLDER

FOLDER contains the --json output of each benchmark, such as solver.json. `make bench`
runs all benchmarks and then this script.
"""

import argparse
import ast
import json
import platform
from importlib.metadata import version
from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"

# For each benchmark, the fields that group rows into tables, and the table columns.
TABLES = {
    "solver": (
        ["texts", "words", "std"],
        [
            "method",
            "ratio",
            "kilobytes",
            "weight error",
            "gradient error",
            "failure",
        ],
    ),
    "pair_scores": (["texts", "words"], ["method", "milliseconds", "ratio", "peak MB"]),
    "pooling": (["texts", "words", "lengths"], ["method", "milliseconds", "ratio"]),
    "training_step": (["shape"], ["method", "milliseconds", "ratio"]),
    "length": (["connectivity"], ["words", "milliseconds", "peak MB"]),
    "vectors": (
        ["megabytes"],
        ["reader", "words", "seconds", "MB/s", "result MB", "overhead MB"],
    ),
    "serve": (
        ["texts"],
        [
            "clients",
            "texts/s",
            "p50",
            "p99",
            "errors",
            "batch",
            "direct texts/s",
            "ratio",
            "direct CPU",
            "HTTP CPU",
            "compute CPU",
            "client CPU",
        ],
    ),
    "inference": (
        ["batch"],
        ["method", "texts/s", "ratio", "accuracy", "difference"],
    ),
    "exported_solver": (["graphs"], ["method", "weight error"]),
    "training_scale": ([], ["documents", "milliseconds", "documents/s"]),
    "cold_start": ([], ["process", "CPU", "seconds", "ratio"]),
    "page": ([], ["words", "kilobytes", "milliseconds", "all edges"]),
}

FORMATS = {"ratio": ".2f", "milliseconds": ".1f", "kilobytes": ".0f", "peak MB": ".0f"}
FORMATS |= {"seconds": ".2f", "MB/s": ".0f", "result MB": ".0f", "overhead MB": ".0f"}
FORMATS |= dict.fromkeys(["texts/s", "direct texts/s"], ".0f")
FORMATS |= dict.fromkeys(["direct CPU", "HTTP CPU", "compute CPU", "client CPU"], ".0f")
FORMATS |= {"p50": ".1f", "p99": ".1f", "batch": ".1f", "all edges": ".0f"}
FORMATS |= {"CPU": ".2f", "accuracy": ".1f", "documents/s": ".1f"}
FORMATS |= dict.fromkeys(["weight error", "gradient error", "difference"], ".0e")

COLORS = ["#0072b2", "#d55e00", "#009e73", "#777777"]


def cell(row: dict, column: str) -> str:
    """Return the formatted value of a column, or an empty string."""
    value = row.get(column, "")
    if column in FORMATS and value != "":
        return format(value, FORMATS[column])
    return str(value)


def tables(rows: list[dict], keys: list[str], columns: list[str]) -> list[str]:
    """Return a Markdown table for each combination of the keys' values."""
    columns = [c for c in columns if any(c in row for row in rows)]
    lines, previous = [], None
    for row in rows:
        case = [row[key] for key in keys]
        if case != previous:
            title = ", ".join(f"{k} = {v}" for k, v in zip(keys, case, strict=True))
            lines += ["", f"**{title}**"] if title else []
            lines += ["", f"| {' | '.join(columns)} |"]
            lines += [f"|{'---|' * len(columns)}"]
            previous = case
        lines.append(f"| {' | '.join(cell(row, column) for column in columns)} |")
    return lines


def section(name: str, content: dict) -> list[str]:
    """Return the section of one benchmark, with its tables collapsed."""
    doc = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text()))
    question, _, rest = doc.partition("\n")
    about = rest.split("\n    python")[0].strip()
    conclusions = [f"- {line}" for line in content["conclusions"]]
    return [
        f"## {question}",
        "",
        about,
        "",
        f"`python benchmarks/{name}.py`, {content['machine']}:",
        "",
        *conclusions,
        "",
        "<details><summary>All measurements</summary>",
        *tables(content["rows"], *TABLES[name]),
        "",
        "</details>",
        "",
    ]


def draw_figure(results: dict[str, dict], path: Path) -> None:
    """Draw pair scores, training steps and growth with text length."""
    plt.rcParams.update({"svg.hashsalt": "perron", "font.size": 9})
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4.2))
    draw_pair_scores(left, results["pair_scores"]["rows"])
    draw_training_step(middle, results["training_step"]["rows"])
    draw_length(right, results["length"]["rows"])
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def draw_pair_scores(axes: plt.Axes, rows: list[dict]) -> None:
    """Draw the time of each method relative to the fused kernel."""
    shapes = list(dict.fromkeys((r["texts"], r["words"]) for r in rows))
    methods = [m for m in dict.fromkeys(r["method"] for r in rows) if m != "fused"]
    width = 0.8 / len(methods)
    for k, method in enumerate(methods):
        heights = [r["ratio"] for r in rows if r["method"] == method]
        positions = [x + k * width for x in range(len(shapes))]
        axes.bar(positions, heights, width, label=method, color=COLORS[k])
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(
        [x + 0.4 - width / 2 for x in range(len(shapes))],
        [f"{texts}\nx {words}" for texts, words in shapes],
    )
    axes.set_title("Pair scores: time relative to fused")


def draw_training_step(axes: plt.Axes, rows: list[dict]) -> None:
    """Draw the time of a training step relative to self-attention."""
    shapes = list(dict.fromkeys(r["shape"] for r in rows))
    methods = list(dict.fromkeys(r["method"] for r in rows))
    height = 0.8 / len(shapes)
    for k, shape in enumerate(shapes):
        widths = [r["ratio"] for r in rows if r["shape"] == shape]
        positions = [y + k * height for y in range(len(methods))]
        axes.barh(positions, widths, height, label=shape, color=COLORS[k])
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(methods))], methods)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_title("Training step: time relative to self-attention")


def draw_length(axes: plt.Axes, rows: list[dict]) -> None:
    """Draw time over words, both on logarithmic scales."""
    for k, name in enumerate(dict.fromkeys(r["connectivity"] for r in rows)):
        own = [r for r in rows if r["connectivity"] == name]
        axes.loglog(
            [r["words"] for r in own],
            [r["milliseconds"] / 1000 for r in own],
            marker="o",
            label=f'connectivity="{name}"',
            color=COLORS[k],
        )
    axes.set_xlabel("words in the text")
    axes.set_ylabel("seconds")
    axes.set_title("Forward and backward pass")


def main() -> None:
    """Write docs/benchmarks.md and docs/benchmarks.svg."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    results = {
        name: json.loads((folder / f"{name}.json").read_text()) for name in TABLES
    }
    matplotlib.use("svg")
    draw_figure(results, DOCS / "benchmarks.svg")
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "numba", "numpy")
    )
    lines = [
        "# Benchmarks",
        "",
        "This page shows how fast, lean and accurate Perron is compared with the",
        "alternatives, and how to repeat each measurement. `make bench` writes it from",
        "one run of each script in `benchmarks/`. The numbers compare methods within",
        "that run, as medians of interleaved repeats. On a shared machine, individual",
        "numbers vary by a third between runs.",
        "",
        f"Python {platform.python_version()}, {packages}.",
        "",
        "![Pair scores, training steps and growth with text length](benchmarks.svg)",
        "",
    ]
    for name, content in results.items():
        lines += section(name, content)
    (DOCS / "benchmarks.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
