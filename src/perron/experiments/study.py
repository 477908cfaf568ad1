"""Studies: variants of a recipe, tuned with equal effort and run with several seeds."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from perron.errors import DataError, SettingsError
from perron.files import read_toml
from perron.migrations import migrate
from perron.models.config import PositiveInt, Settings, problems
from perron.pooling import AGGREGATORS
from perron.registry import options_of
from perron.text.datasets import source_files
from perron.training.recipe import SETTINGS, Recipe, read_recipe, recipe_table

Overrides = tuple[str, ...]  # "training.seed=3", as for --set


class Variant(Settings):
    """One of the things compared."""

    set: Overrides = ()
    seeds: PositiveInt | None = None  # as many as the study says


class Study(Settings):
    """What is run.

    Of each variant every point of the grid is run with seed 0, and the point that is
    best on dev is run with the other seeds: so all variants are tuned with the same
    effort, and none by its test data.
    """

    title: str
    recipe: str
    set: Overrides = ()  # for all runs
    grid: Annotated[tuple[Overrides, ...], Field(min_length=1)] = ((),)
    seeds: PositiveInt = 3
    reference: str | None = None  # what the others are tested against; else the first
    speed_reference: str | None = None  # the variant that times are relative to
    variants: Annotated[dict[str, Variant], Field(min_length=1)]
    # What whoever runs it sets, on top of the grid; what a variant sets stays.
    user_overrides: Overrides = ()

    @model_validator(mode="after")
    def _references_are_variants(self) -> "Study":
        for key in ("reference", "speed_reference"):
            name = getattr(self, key)
            if name is not None and name not in self.variants:
                raise ValueError(f"{key}: there is no variant {name!r}")
        return self

    @property
    def reference_variant(self) -> str:
        """The variant that the others are tested against."""
        return self.reference or next(iter(self.variants))

    @property
    def num_runs(self) -> int:
        """How many there are in all."""
        tuning = (len(self.grid) - 1) * len(self.variants)
        return tuning + sum(map(self.num_seeds, self.variants))

    def num_seeds(self, variant: str) -> int:
        """Return how many runs a variant has."""
        return self.variants[variant].seeds or self.seeds

    def tuned_settings(self, variant: str, point: int) -> list[str]:
        """Return what tells a run's point from the grid's others, as it was run.

        ``asked`` and the variant may have set other values than the point has; of a
        grid of one point there is nothing to tell.
        """
        if len(self.grid) == 1:
            return []
        keys = {_key(setting) for setting in self.grid[point]}
        settings = self.overrides(variant, point, seed=0)
        return [setting for setting in settings if _key(setting) in keys]

    def overrides(self, variant: str, point: int, seed: int) -> list[str]:
        """Return what to set for one run; of what is set twice, the last."""
        own = self.variants[variant].set
        shared = [*self.set, *self.grid[point], *self.user_overrides]
        settings = [*shared, *own, f"training.seed={seed}"]
        last = {_key(setting): place for place, setting in enumerate(settings)}
        return [settings[place] for place in sorted(last.values())]


@dataclass(frozen=True)
class Trial:
    """One run of a study."""

    study: Study
    variant: str
    point: int
    seed: int

    @property
    def command(self) -> str:
        """The command that does this run alone."""
        settings = self.study.overrides(self.variant, self.point, self.seed)
        words = ["perron", "train", self.study.recipe]
        words += [word for setting in settings for word in ("--set", setting)]
        return shlex.join(words)

    @property
    def folder_name(self) -> str:
        """The name of its folder."""
        name = re.sub(r"[^\w.=-]+", "-", self.variant)
        return f"{name}-point{self.point}-seed{self.seed}"

    @property
    def lock_name(self) -> str:
        """The name of its lock file, in the folder of the study."""
        return f".{self.folder_name}.lock"

    def run_folder(self, folder: Path) -> Path:
        """Return its folder in the folder of the study.

        That is the folder of an earlier version of ``perron compare``, if there is one.
        """
        earlier = folder / f"{re.sub('[:=,]', '-', self.variant)}-{self.seed}"
        own = folder / self.folder_name
        is_earlier = not own.exists() and (earlier / SETTINGS).exists()
        return earlier if self.point == 0 and is_earlier else own

    def recipe(self) -> Recipe:
        """Return its settings."""
        settings = self.study.overrides(self.variant, self.point, self.seed)
        where = f"{self.study.title}, {self.variant}"
        return read_recipe(recipe_table(self.study.recipe), settings, where)

    def data_bytes(self, root: Path | None) -> int | None:
        """Return the size of all files of its data; None if they are not there."""
        try:
            files = source_files(self.recipe().data, root)
        except DataError:
            return None
        return sum(path.stat().st_size for path in files) or None


def all_trials(study: Study) -> Iterator[Trial]:
    """Yield every run that a study may come to, whichever grid points are chosen."""
    for name in study.variants:
        for point in range(len(study.grid)):
            for seed in range(study.num_seeds(name)):
                yield Trial(study, name, point, seed)


def _key(setting: str) -> str:
    return setting.partition("=")[0]


def read_study(
    name: str, overrides: Sequence[str] = (), seeds: int | None = None
) -> Study:
    """Read a study from a TOML file.

    With ``like = "OTHER.toml"``, the path of another study relative to the file, the
    settings that the file leaves out are those of the other study.

    Args:
        name: Path of the file.
        overrides: Settings of all runs, see `Study.user_overrides`.
        seeds: Number of runs of each variant. Defaults to the numbers in the study.
    """
    try:
        study = Study.model_validate(_table(name))
    except ValidationError as error:
        raise SettingsError(f"{name}: {problems(error)[0]}") from error
    for setting in overrides:
        _check_effect(study, setting)
    update: dict[str, Any] = {"user_overrides": (*study.user_overrides, *overrides)}
    if seeds is not None:
        update["variants"] = {
            key: Variant(set=variant.set, seeds=seeds)
            for key, variant in study.variants.items()
        }
    return study.model_copy(update=update)


def aggregator_study(
    recipe: Recipe, file: str, aggregators: Sequence[str], seeds: int, title: str
) -> Study:
    """Return a study that compares aggregators, with one variant for each.

    The others are tested against centrality, or the first aggregator without it, and
    times are relative to self-attention.

    Args:
        recipe: Settings that the variants share.
        file: Path of the recipe, for the commands of the runs.
        aggregators: Names, with options where needed:
            ``dynamic-routing:reverse=true,capsules=4``.
        seeds: Number of seeds.
        title: Title of the table.
    """
    variants = {name: Variant(set=_overrides(recipe, name)) for name in aggregators}
    return Study(
        title=title,
        recipe=file,
        seeds=seeds,
        reference="centrality" if "centrality" in variants else None,
        speed_reference="self-attention" if "self-attention" in variants else None,
        variants=variants,
    )


def _overrides(recipe: Recipe, aggregator: str) -> Overrides:
    """Return the settings that change the aggregator of a recipe.

    The recipe's own aggregator keeps its options. Another one takes over ``hidden``, so
    that both have about as many parameters.
    """
    name, _, text = aggregator.partition(":")
    options = tuple(
        f"model.aggregator.{option}" for option in text.split(",") if option
    )
    own = recipe.model.aggregator
    if name == own.name:
        return options
    hidden_dim = getattr(own, "hidden_dim", None)
    if hidden_dim is not None and "hidden_dim" in options_of(AGGREGATORS[name]):
        options = (f"model.aggregator.hidden_dim={hidden_dim}", *options)
    return (f"model.aggregator={name}", *options)


def _check_effect(study: Study, setting: str) -> None:
    """Raise if all variants would undo what is asked for."""
    key = _key(setting)
    if key == "training.seed":
        raise SettingsError(f"--set {setting}: a study has its own seeds; see --seeds")
    # Setting a table sets all that is in it.
    undone = [
        name
        for name, variant in study.variants.items()
        if any(f"{key}.".startswith(f"{_key(own)}.") for own in variant.set)
    ]
    if len(undone) == len(study.variants):
        raise SettingsError(
            f"--set {setting}: has no effect, as each variant of {study.title} says "
            "itself what this is; change them in a file of your own (like = ...)"
        )


def _table(name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a study's file, on top of the file that its ``like`` names."""
    path = Path(name)
    if not path.is_file():
        raise SettingsError(
            f"study must be the path of a TOML file, got {name!r}, which is not a file."
            " The studies of the paper are in papers/gong2019/studies of a checkout."
        )
    table = migrate("study", read_toml(path), path)
    like = table.pop("like", None)
    if like is None:
        return table
    other = str(path.parent / str(like))
    if other in (*seen, name):
        raise SettingsError(f"{name}: like = {like!r} leads back to this file.")
    return {**_table(other, (*seen, name)), **table}
