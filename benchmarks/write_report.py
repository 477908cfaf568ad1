"""Write docs/benchmarks.md and its picture from what the benchmarks measured.

    python benchmarks/write_report.py FOLDER

FOLDER holds the files that the benchmarks wrote with --json, each under its own name.
`make bench` runs them all and then this.
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

# For each benchmark, what tells its tables apart, and the columns of a table.
TABLES = {
    "solver": (
        ["texts", "words", "deviation"],
        ["way", "ratio", "kilobytes", "entry", "gradient", "failed"],
    ),
    "pair_scores": (["texts", "words"], ["way", "milliseconds", "ratio", "peak"]),
    "pooling": (["texts", "words", "lengths"], ["way", "milliseconds", "ratio"]),
    "training_step": (["shape"], ["way", "milliseconds", "ratio"]),
    "length": (["connectivity"], ["words", "milliseconds", "peak"]),
    "vectors": (
        ["megabytes"],
        ["reader", "words", "seconds", "MB/s", "kept", "above"],
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
            "direct",
            "ratio",
            "alone",
            "HTTP",
            "compute",
            "asking",
        ],
    ),
    "inference": (
        ["batch"],
        ["way", "texts/s", "ratio", "accuracy", "difference"],
    ),
    "exported_solver": (["graphs"], ["way", "entry"]),
    "training_scale": ([], ["documents", "milliseconds", "documents/s"]),
    "page": ([], ["words", "kilobytes", "milliseconds", "all edges"]),
}

STYLES = {"ratio": ".2f", "milliseconds": ".1f", "kilobytes": ".0f", "peak": ".0f"}
STYLES |= {"seconds": ".2f", "MB/s": ".0f", "kept": ".0f", "above": ".0f"}
STYLES |= dict.fromkeys(["texts/s", "direct", "alone", "HTTP"], ".0f")
STYLES |= dict.fromkeys(["compute", "asking"], ".0f")
STYLES |= {"p50": ".1f", "p99": ".1f", "batch": ".1f", "all edges": ".0f"}
STYLES |= {"accuracy": ".1f", "documents/s": ".1f"}

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#777777"]


def show(row: dict, column: str) -> str:
    """Return a cell of a table."""
    value = row.get(column, "")
    if column in ("entry", "gradient", "difference") and value != "":
        return f"{value:.0e}"
    return (
        format(value, STYLES[column])
        if column in STYLES and value != ""
        else str(value)
    )


def tables(rows: list[dict], keys: list[str], columns: list[str]) -> list[str]:
    """Return a Markdown table for each combination of the keys."""
    columns = [c for c in columns if any(c in row for row in rows)]
    lines, before = [], None
    for row in rows:
        case = [row[key] for key in keys]
        if case != before:
            title = ", ".join(f"{k} {v}" for k, v in zip(keys, case, strict=True))
            lines += ["", f"**{title}**"] if title else []
            lines += ["", f"| {' | '.join(columns)} |"]
            lines += [f"|{'---|' * len(columns)}"]
            before = case
        lines.append(f"| {' | '.join(show(row, column) for column in columns)} |")
    return lines


def section(name: str, content: dict) -> list[str]:
    """Return what one benchmark has to say, its tables folded away."""
    doc = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text()))
    question, _, rest = doc.partition("\n")
    about = rest.split("\n    python")[0].strip()
    found = [f"- {line}" for line in content["conclusions"]]
    return [
        f"## {question}",
        "",
        about,
        "",
        f"`python benchmarks/{name}.py`, {content['machine']}:",
        "",
        *found,
        "",
        "<details><summary>every number</summary>",
        *tables(content["rows"], *TABLES[name]),
        "",
        "</details>",
        "",
    ]


def picture(results: dict[str, dict], path: Path) -> None:
    """Draw pair scores, a step of training, and growth with length."""
    plt.rcParams.update({"svg.hashsalt": "perron", "font.size": 9})
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4.2))
    draw_pair_scores(left, results["pair_scores"]["rows"])
    draw_step(middle, results["training_step"]["rows"])
    draw_length(right, results["length"]["rows"])
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def draw_pair_scores(axes: plt.Axes, rows: list[dict]) -> None:
    """Times of each way as a multiple of the fused kernel's."""
    shapes = list(dict.fromkeys((r["texts"], r["words"]) for r in rows))
    ways = [w for w in dict.fromkeys(r["way"] for r in rows) if w != "fused"]
    width = 0.8 / len(ways)
    for k, way in enumerate(ways):
        heights = [r["ratio"] for r in rows if r["way"] == way]
        places = [x + k * width for x in range(len(shapes))]
        axes.bar(places, heights, width, label=way, color=COLOURS[k])
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks(
        [x + 0.4 - width / 2 for x in range(len(shapes))],
        [f"{texts}\nx {words}" for texts, words in shapes],
    )
    axes.set_title("pair scores: time / fused")


def draw_step(axes: plt.Axes, rows: list[dict]) -> None:
    """Steps of training as a multiple of self-attention's."""
    shapes = list(dict.fromkeys(r["shape"] for r in rows))
    ways = list(dict.fromkeys(r["way"] for r in rows))
    height = 0.8 / len(shapes)
    for k, shape in enumerate(shapes):
        widths = [r["ratio"] for r in rows if r["shape"] == shape]
        places = [y + k * height for y in range(len(ways))]
        axes.barh(places, widths, height, label=shape, color=COLOURS[k])
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(ways))], ways)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_title("training step: time / self-attention")


def draw_length(axes: plt.Axes, rows: list[dict]) -> None:
    """Time over words, both on logarithmic scales."""
    for k, name in enumerate(dict.fromkeys(r["connectivity"] for r in rows)):
        own = [r for r in rows if r["connectivity"] == name]
        axes.loglog(
            [r["words"] for r in own],
            [r["milliseconds"] / 1000 for r in own],
            marker="o",
            label=f'connectivity="{name}"',
            color=COLOURS[k],
        )
    axes.set_xlabel("words of one text")
    axes.set_title("forward and backward, seconds")


def main() -> None:
    """Read the folder and write both files."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    results = {
        name: json.loads((folder / f"{name}.json").read_text()) for name in TABLES
    }
    matplotlib.use("svg")
    picture(results, DOCS / "benchmarks.svg")
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("torch", "numba", "numpy")
    )
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench`: one run of each script in `benchmarks/`. Figures",
        "compare ways within that run, by medians of interleaved repeats; on a shared",
        "machine single ones move by a third from run to run.",
        "",
        f"Python {platform.python_version()}, {packages}.",
        "",
        "![pair scores, training steps and growth with length](benchmarks.svg)",
        "",
    ]
    for name, content in results.items():
        lines += section(name, content)
    (DOCS / "benchmarks.md").write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
