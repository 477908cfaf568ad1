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
    ripe: Annotated[bool, typer.Option("--ripe", help="It is ripe.")] = False


@dataclass(frozen=True)
class ManyFruits(Fruit):
    count: Annotated[int, typer.Option(min=1, help="How many.")] = 1


def run(command, *arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


def test_a_command_gets_its_options_as_one_object():
    @with_options(ManyFruits)
    def eat(color: Annotated[str, typer.Option()], fruit: ManyFruits):
        typer.echo(repr((color, fruit)))

    result = run(eat, "plum", "--ripe", "--count", "3", "--color", "red")
    assert "('red', ManyFruits(name='plum', ripe=True, count=3))" in result.output
    assert "count=1" in run(eat, "plum", "--color", "red").output


def test_the_options_of_a_group_are_validated_and_in_the_help():
    @with_options(ManyFruits)
    def eat(fruit: ManyFruits):
        """Eat it."""

    assert run(eat, "plum", "--count", "0").exit_code == 2
    assert run(eat).exit_code == 2
    help = run(eat, "--help").output
    for part in ("Eat it.", "Name of the fruit.", "--ripe", "It is ripe.", "--count"):
        assert part in help


def test_a_command_must_take_the_groups_it_names():
    with pytest.raises(TypeError, match="eat"):

        @with_options(Fruit)
        def eat(count: int): ...


def test_two_options_cannot_share_a_name():
    with pytest.raises(ValueError, match="ripe"):

        @with_options(Fruit)
        def eat(fruit: Fruit, ripe: bool = False): ...


@pytest.mark.parametrize("name", ["text", "text_pair", "label", "data_format"])
def test_options_about_data_need_data(name):
    with pytest.raises(SettingsError, match=f"--{name.replace('_', '-')}"):
        DataOptions(**{name: "x"}).check()
    DataOptions(data="x.csv", **{name: "x"}).check()


@pytest.mark.parametrize("options", [{"split": "1,0,0"}, {"documents": True}])
def test_training_has_more_options_that_need_data(options):
    with pytest.raises(SettingsError, match=f"--{next(iter(options))}"):
        TrainOptions(recipe="demo", **options).check()


def test_options_that_work_with_a_recipe_need_no_data():
    TrainOptions(
        recipe="sst2", skip_invalid=True, vectors=["none"], encoder="cnn"
    ).check()
