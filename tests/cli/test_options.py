from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

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
