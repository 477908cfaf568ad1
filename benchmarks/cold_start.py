"""How long does a new process take to classify one text?

This benchmark runs `perron predict` with a small model and one sentence, in fresh
processes that take turns. The columns are:

    CPU        CPU seconds, median
    seconds    elapsed seconds, median
    ratio      CPU time relative to `import torch` in the same turn, median

With an empty cache of compiled kernels, plain torch answers by default, and nothing is
compiled for a single sentence. ``PERRON_KERNELS=numba`` waits for the compiled kernels.
The remaining rows show what this costs for a prediction, and for a training step in
float32. Rows that start with "before" show an earlier version (``--before``).

    python benchmarks/cold_start.py [--json FILE] [--repeats 5] [--before FOLDER]

``--before`` adds rows for an earlier version, whose package is FOLDER/perron.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perron import Pipeline
from perron.models import ModelConfig, build_model
from perron.text.encoding import TextProcessor
from perron.text.tokenizers import WordTokenizer
from timing import Report

TRAIN = """
import torch, perron
pool = perron.CentralityPool(8)
mask = torch.arange(70) < torch.tensor([3] * 8 + [70])[:, None]
pool(torch.randn(9, 70, 8), mask).vector.sum().backward()
"""


def save_model(folder: Path) -> None:
    """Save a BiLSTM model with centrality pooling and random weights."""
    words = ["[UNK]", "a", "gorgeous", "witty", "film"]
    settings = {
        "kind": "text",
        "encoder": {"name": "bilstm", "hidden_dim": 100},
        "aggregator": "centrality",
        "embedding": {"embedding_dim": 50},
    }
    config = ModelConfig(
        settings=settings,
        vocab_size=len(words),
        labels=("bad", "good"),
        max_words=100,
        max_sentences=1,
    )
    processor = TextProcessor(WordTokenizer.from_words(words, "lower"), "text", 100, 1)
    Pipeline(build_model(config), processor).save_pretrained(folder)


def run(arguments: list[str], package: str | None, cache: Path, kernels: str) -> dict:
    """Return the CPU time and the elapsed time of a fresh process."""
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(cache),
        "PERRON_KERNELS": kernels,
    }
    if package is not None:
        environment["PYTHONPATH"] = package
    begin = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"CPU": cpu, "seconds": time.perf_counter() - begin}


def measure(folder: Path, repeats: int, packages: dict[str, str | None]) -> list[dict]:
    """Return one row per case, with the medians over all turns."""
    predict = ["-m", "perron", "predict", str(folder / "model"), "a witty film"]
    train = ["-c", TRAIN]
    processes = {
        "import perron": (["-c", "import perron"], ""),
        "predict": (predict, ""),
        "predict, empty cache": (predict, ""),
        "predict, compiled": (predict, "numba"),
        "predict, compiled, empty cache": (predict, "numba"),
        "training step": (train, ""),
        "training step, empty cache": (train, ""),
    }
    cases = [("", "import torch", ["-c", "import torch"], "")]
    for version in packages:
        cases += [(version, name, *process) for name, process in processes.items()]
    times: dict[str, list[dict]] = {version + name: [] for version, name, *_ in cases}
    for turn in range(repeats + 1):  # the first turn fills the caches
        for version, name, arguments, kernels in cases:
            is_empty = name.endswith("empty cache")
            if turn == 0 and is_empty:
                continue
            with tempfile.TemporaryDirectory() as empty:
                cache = Path(empty) if is_empty else folder / f"cache {version}"
                measured = run(arguments, packages[version], cache, kernels)
            if turn:
                times[version + name].append(measured)
    reference = times["import torch"]
    rows = []
    for name, values in times.items():
        ratios = [a["CPU"] / b["CPU"] for a, b in zip(values, reference, strict=True)]
        row = {
            key: statistics.median(value[key] for value in values)
            for key in ("CPU", "seconds")
        }
        rows.append({"process": name, **row, "ratio": statistics.median(ratios)})
    return rows


def conclusions(rows: list[dict], version: str) -> list[str]:
    """Return a summary of the rows of one version."""
    by_name = {row["process"].removeprefix(version): row for row in rows}

    def extra(name: str) -> float:
        return by_name[f"{name}, empty cache"]["CPU"] - by_name[name]["CPU"]

    return [
        f"{version}`perron predict` takes {by_name['predict']['ratio']:.2f} times the "
        f"CPU time of `import torch`, {extra('predict'):+.1f} s with an empty cache",
        f"{version}compilation takes {extra('predict, compiled'):.1f} s of CPU time "
        f"for a prediction, {extra('training step'):.1f} s for a training step",
    ]


def main() -> None:
    """Run the benchmark."""
    report = Report(
        __doc__,
        budget=0,
        options={
            "--repeats": {"type": int, "default": 5},
            "--before": {"type": Path, "metavar": "FOLDER"},
        },
    )
    packages: dict[str, str | None] = {"": None}
    if report.options.before is not None:
        packages["before: "] = str(report.options.before)
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model")
        repeats = 1 if report.quick else report.options.repeats
        rows = measure(Path(folder), repeats, packages)
    columns = {"process": "", "CPU": ".2f", "seconds": ".2f", "ratio": ".2f"}
    report.add("Start-up", rows, columns)
    report.finish([line for name in packages for line in conclusions(rows, name)])


if __name__ == "__main__":
    main()
