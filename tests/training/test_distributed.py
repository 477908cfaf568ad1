"""Distributed training gives the same results as a single process."""

import json
import os
import socket
import subprocess
import sys
from functools import cache
from itertools import chain

import pytest
import tomli_w
from perron_tests import HELPERS
from perron_tests.training import tiny_table, write_texts


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


ONE_MACHINE = [
    *("torch.distributed.run", "--nproc_per_node=2", "--master_port={port}", "-m"),
    "perron",
]
# As in docs/scale.md, except that both machines are this one. (Without --multi_gpu, or
# with --cpu, accelerate would start independent processes.)
TWO_MACHINES = [
    "accelerate.commands.launch",
    *("--multi_gpu", "--num_machines=2", "--num_processes=2", "--machine_rank={rank}"),
    *("--main_process_ip=127.0.0.1", "--main_process_port={port}"),
    str(HELPERS / "perron_tests" / "record_batches.py"),
    ".",
]
LAUNCHES = {  # command, options, machines
    "alone": (["perron"], [], 1),
    "one machine": (ONE_MACHINE, ["--set", "training.num_micro_batches=2"], 1),
    "two machines": (TWO_MACHINES, [], 2),
}
DISTRIBUTED = ["one machine", pytest.param("two machines", marks=pytest.mark.slow)]
BATCH = 7


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    table = tiny_table(write_texts(folder / "texts.csv", rows=89))
    # Each process draws its own dropout masks, so disable dropout to compare curves.
    table["model"]["embedding"]["dropout"] = table["model"]["head"]["dropout"] = 0.0
    # 71 texts in batches of 7 leave a batch of one text. One process has no text in
    # it and uses a text with weight zero.
    table["training"] |= {"batch_size": BATCH, "min_batch_size": BATCH}
    # Each process computes its own weight average, which is evaluated on dev.
    table["training"] |= {"max_epochs": 3, "ema_decay": 0.8}
    (folder / "tiny.toml").write_text(tomli_w.dumps(table))
    environment = os.environ | {
        "PERRON_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "COLUMNS": "200",  # tables do not wrap
    }

    def perron(launcher: list[str], *arguments: str, machines: int = 1) -> str:
        port = free_port()
        runs = [
            subprocess.Popen(
                [sys.executable, "-m"]
                + [part.format(port=port, rank=rank) for part in launcher]
                + list(arguments),
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(machines)
        ]
        outputs = [run.communicate(timeout=300) for run in runs]
        assert [run.returncode for run in runs] == [0] * machines, "".join(
            map("".join, outputs)
        )
        return "".join(out for out, _ in outputs)

    return folder, perron


@pytest.fixture(scope="module")
def trained(workspace):
    folder, perron = workspace

    @cache
    def train(name: str):
        launcher, extra, machines = LAUNCHES[name]
        options = ["train", "tiny.toml", "--out", name, *extra]
        output = perron(launcher, *options, machines=machines)
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], output

    return train


@pytest.mark.parametrize("launch", DISTRIBUTED)
def test_two_processes_have_the_same_loss_curve_as_one(trained, launch):
    (one, _), (two, _) = trained("alone"), trained(launch)
    assert len(one) == len(two) == 3
    for alone, together in zip(one, two, strict=True):
        assert alone["step"] == together["step"]
        for name in ("train_log_loss", "dev_log_loss"):
            assert together[name] == pytest.approx(alone[name], rel=1e-4)
        for name in ("train_accuracy", "dev_accuracy", "dev_macro_f1"):
            assert together[name] == alone[name]
    assert one[-1]["train_log_loss"] < 0.9 * one[0]["train_log_loss"]


@pytest.mark.parametrize("launch", DISTRIBUTED)
def test_only_the_main_process_prints(trained, launch):
    assert trained(launch)[1].replace(launch, "alone") == trained("alone")[1]


@pytest.mark.slow
def test_each_process_reads_its_share_of_the_training_texts(trained, workspace):
    folder, _ = workspace
    trained("two machines")
    reads = [json.loads((folder / f"reads-{rank}.json").read_text()) for rank in (0, 1)]
    # The main process also reads all texts once for the fingerprint, in larger batches.
    trained_rows = [[r for r in read if len(r) <= BATCH // 2 + 1] for read in reads]
    assert len(trained_rows[0]) == len(trained_rows[1]) == 3 * 11
    for epoch in range(3):
        parts = [read[11 * epoch : 11 * (epoch + 1)] for read in trained_rows]
        first, second = (list(chain.from_iterable(part)) for part in parts)
        repeated = [rows for rows in zip(*parts, strict=True) if rows[0] == rows[1]]
        assert len(repeated) == 1
        second.remove(repeated[0][1][0])
        assert sorted(first + second) == list(range(71))
    assert all(len(rows) <= BATCH // 2 + 1 for rows in reads[1])


@pytest.mark.slow
def test_compare_runs_in_two_processes(workspace):
    folder, perron = workspace
    options = ["--aggregators", "max mean", "--seeds", "1", "--out", "compared"]
    output = perron(ONE_MACHINE, "compare", "tiny.toml", *options)
    assert output.count("s/epoch") == 1
    rows = json.loads((folder / "compared" / "compare.json").read_text())
    assert [row["variant"] for row in rows] == ["max", "mean"]
    assert len((folder / "compared" / "records.jsonl").read_text().splitlines()) == 2


def test_processes_share_the_cached_states_of_a_frozen_encoder(workspace):
    pytest.importorskip("transformers", reason="needs the extra hf")
    from perron_tests.tiny_bert import write_tiny_bert

    folder, perron = workspace
    table = tiny_table(folder / "texts.csv")
    model = str(write_tiny_bert(folder / "bert"))
    table["model"]["encoder"] = {"name": "hf", "model": model, "freeze": True}
    table["model"]["encoder"]["layers"] = "mix"
    table["model"]["head"]["dropout"] = 0.0
    table["text"] = {"max_words": 30}
    table["training"] |= {"max_epochs": 2, "cache_dtype": "float32"}
    (folder / "frozen.toml").write_text(tomli_w.dumps(table))
    curves = []
    for name in ("alone", "one machine"):
        out = f"frozen {name}"
        perron(LAUNCHES[name][0], "train", "frozen.toml", "--out", out)
        lines = (folder / out / "metrics.jsonl").read_text().splitlines()
        curves.append([json.loads(line) for line in lines])
        stores = list((folder / "cache" / "states").glob("*/states-*.bin"))
        assert len(stores) == 3  # one per layer
    for alone, together in zip(*curves, strict=True):
        for key in ("train_log_loss", "dev_log_loss"):
            assert together[key] == pytest.approx(alone[key], rel=1e-4)
