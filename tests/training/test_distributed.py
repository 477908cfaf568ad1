"""Several processes train as one does, under both launchers."""

import json
import os
import socket
import subprocess
import sys

import pytest
import tomli_w
from training.tiny import tiny_table, write_texts


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


LAUNCHERS = {
    "torchrun": ["torch.distributed.run", "--nproc_per_node=2", "--master_port={port}"],
    "accelerate": [
        "accelerate.commands.launch",
        "--cpu",
        "--num_processes=2",
        "--main_process_port={port}",
    ],
}


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("distributed")
    table = tiny_table(write_texts(folder / "texts.csv", rows=90))
    # Each process draws its own dropout, so curves can be equal only without.
    table["model"]["embedding"]["dropout"] = table["model"]["head"]["dropout"] = 0.0
    # 72 texts in batches of 7 leave one text for the last: a process has none.
    table["training"] |= {"batch_size": 7, "batch_size_low": 7, "max_epochs": 3}
    (folder / "tiny.toml").write_text(tomli_w.dumps(table))
    environment = os.environ | {
        "PERRON_CACHE": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }

    def perron(launcher: list[str], *arguments: str) -> str:
        command = [sys.executable, "-m"]
        for part in launcher:
            command.append(part.format(port=free_port()))
        run = subprocess.run(
            [*command, *["-m"] * bool(launcher), "perron", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    return folder, perron


@pytest.fixture(scope="module")
def trained(surroundings):
    folder, perron = surroundings

    def train(name: str, launcher: list[str]) -> tuple[list[dict], str]:
        told = perron(launcher, "train", "tiny.toml", "--out", name)
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], told

    return {"one": train("one", [])} | {
        name: train(name, launcher) for name, launcher in LAUNCHERS.items()
    }


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_have_the_loss_curve_of_one(trained, launcher):
    (one, _), (two, _) = trained["one"], trained[launcher]
    assert len(one) == len(two) == 3
    for alone, together in zip(one, two, strict=True):
        assert alone["step"] == together["step"]
        for name in ("train_loss", "dev_loss"):
            assert together[name] == pytest.approx(alone[name], rel=1e-4)
        for name in ("train_accuracy", "dev_accuracy"):
            assert together[name] == alone[name]
    assert one[-1]["train_loss"] < 0.9 * one[0]["train_loss"]  # something was learnt


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_only_one_of_two_processes_speaks(trained, launcher):
    assert trained[launcher][1] == trained["one"][1]


def test_two_processes_compare(surroundings):
    folder, perron = surroundings
    options = ["--aggregators", "max mean", "--seeds", "1", "--out", "compared"]
    told = perron(LAUNCHERS["torchrun"], "compare", "tiny.toml", *options)
    assert told.count("aggregator") == 1
    lines = json.loads((folder / "compared" / "compare.json").read_text())
    assert [line["aggregator"] for line in lines] == ["max", "mean"]
