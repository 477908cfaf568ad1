import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Annotated

import pytest
import torch
import typer
from perron_tests.errors import assert_mentions
from torch import nn
from typer.testing import CliRunner

from perron.cli import _available_threads, limit_threads
from perron.cli.options import DataOptions, TrainOptions, with_options
from perron.errors import SettingsError


@dataclass(frozen=True)
class Fruit:
    name: Annotated[str, typer.Argument(help="Name of the fruit.")]
    ripe: Annotated[bool, typer.Option("--ripe", help="The fruit is ripe.")] = False


@dataclass(frozen=True)
class ManyFruits(Fruit):
    count: Annotated[int, typer.Option(min=1, help="Number of fruits.")] = 1


def run(command, *arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


def test_a_command_receives_its_options_as_one_object():
    @with_options(ManyFruits)
    def eat(color: Annotated[str, typer.Option()], fruit: ManyFruits):
        typer.echo(repr((color, fruit)))

    result = run(eat, "plum", "--ripe", "--count", "3", "--color", "red")
    assert "('red', ManyFruits(name='plum', ripe=True, count=3))" in result.output
    assert "count=1" in run(eat, "plum", "--color", "red").output


def test_the_options_of_a_group_are_validated_and_documented():
    @with_options(ManyFruits)
    def eat(fruit: ManyFruits):
        """Eat a fruit."""

    assert run(eat, "plum", "--count", "0").exit_code == 2
    assert run(eat).exit_code == 2
    help = run(eat, "--help").output
    for part in (
        "Eat a fruit.",
        "Name of the fruit.",
        "--ripe",
        "The fruit is ripe.",
        "--count",
    ):
        assert part in help


def test_a_command_must_have_a_parameter_for_each_group():
    with pytest.raises(TypeError, match="eat"):

        @with_options(Fruit)
        def eat(count: int): ...


def test_two_options_cannot_have_the_same_name():
    with pytest.raises(ValueError, match="ripe"):

        @with_options(Fruit)
        def eat(fruit: Fruit, ripe: bool = False): ...


@pytest.mark.parametrize("name", ["text", "text_pair", "label", "data_format"])
def test_data_options_require_data(name):
    with pytest.raises(SettingsError, match=f"--{name.replace('_', '-')}"):
        DataOptions(**{name: "x"}).check()
    DataOptions(data="x.csv", **{name: "x"}).check()


@pytest.mark.parametrize("options", [{"split": "1,0,0"}, {"documents": True}])
def test_some_training_options_require_data(options):
    with pytest.raises(SettingsError, match=f"--{next(iter(options))}"):
        TrainOptions(recipe="demo", **options).check()


def test_options_that_apply_to_recipes_do_not_require_data():
    TrainOptions(
        recipe="sst2", skip_invalid=True, vectors=["none"], encoder="cnn"
    ).check()


class TestThreads:
    LARGE = nn.Linear(2000, 1000)

    @pytest.fixture(autouse=True)
    def _four_threads(self, monkeypatch):
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: 8)
        monkeypatch.setattr(time, "process_time", lambda: 0.0)
        torch.set_num_threads(4)
        _available_threads.cache_clear()
        yield
        _available_threads.cache_clear()

    def limit(self, monkeypatch, load, model=None, **options):
        monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
        return limit_threads(model, **options), torch.get_num_threads()

    @pytest.mark.parametrize(
        ("load", "threads"), [(0.1, 4), (4.0, 2), (7.5, 1), (20.0, 1)]
    )
    def test_cores_that_other_programs_use_are_left_to_them(
        self, monkeypatch, load, threads
    ):
        message, used = self.limit(monkeypatch, load, self.LARGE)
        assert used == threads
        if threads == 4:
            assert message is None
        else:
            assert_mentions(message, threads, 4, load, "OMP_NUM_THREADS")

    def test_a_small_model_uses_one_thread(self, monkeypatch):
        message, used = self.limit(monkeypatch, 0.0, nn.Linear(10, 10))
        assert used == 1
        assert_mentions(message, 1, 4, "small")

    def test_frozen_weights_count_for_prediction_only(self, monkeypatch):
        frozen = nn.Linear(2000, 1000).requires_grad_(False)
        assert self.limit(monkeypatch, 0.0, frozen) == (None, 4)
        assert self.limit(monkeypatch, 0.0, frozen, trains=True)[1] == 1

    def test_a_larger_model_in_the_same_process_uses_more_threads(self, monkeypatch):
        assert self.limit(monkeypatch, 0.0, nn.Linear(10, 10))[1] == 1
        assert self.limit(monkeypatch, 0.0, self.LARGE) == (None, 4)

    def test_the_load_of_this_process_does_not_count(self, monkeypatch):
        monkeypatch.setattr(time, "monotonic", lambda: 1e6)
        monkeypatch.setattr(time, "process_time", lambda: 4e6)  # four busy threads
        assert self.limit(monkeypatch, 4.0, self.LARGE) == (None, 4)

    def test_your_own_choice_is_respected(self, monkeypatch):
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
        assert self.limit(monkeypatch, 20.0, nn.Linear(2, 2)) == (None, 4)


KEPT_BYTES = """
import ctypes, sys
import torch
from perron.cli import keep_freed_memory

class Statistics(ctypes.Structure):  # struct mallinfo2, see mallinfo(3)
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    ).split()]

if sys.argv[1] == "keep":
    keep_freed_memory()
mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Statistics
blocks = [torch.ones(4 << 20, dtype=torch.int32) for _ in range(2)]  # 16 MB each
del blocks
print(mallinfo().fordblks)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="mallopt is in glibc only"
)
def test_training_keeps_freed_memory():
    def kept_bytes(mode):
        command = [sys.executable, "-c", KEPT_BYTES, mode]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"))
        }
        result = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment
        )
        return int(result.stdout)

    assert kept_bytes("keep") >= 32 << 20
    assert kept_bytes("default") < 16 << 20
