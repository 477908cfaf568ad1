"""A study: variants of a recipe, tuned alike and run with several seeds."""

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from perron.errors import SettingsError
from perron.models.config import Count, Settings, what_is_wrong

Overrides = tuple[str, ...]  # "training.seed=3", as for --set


class Variant(Settings):
    """One of the things compared."""

    set: Overrides = ()
    seeds: Count | None = None  # as many as the study says


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
    seeds: Count = 3
    reference: str | None = None  # what the others are tested against; else the first
    variants: Annotated[dict[str, Variant], Field(min_length=1)]
    # What whoever runs it sets, on top of the grid; what a variant sets stays.
    asked: Overrides = ()

    @model_validator(mode="after")
    def _reference_is_there(self) -> "Study":
        if self.reference is not None and self.reference not in self.variants:
            raise ValueError(f"reference: there is no variant {self.reference!r}")
        return self

    @property
    def compared_with(self) -> str:
        """The variant that the others are tested against."""
        return self.reference or next(iter(self.variants))

    @property
    def runs(self) -> int:
        """How many there are in all."""
        tuning = (len(self.grid) - 1) * len(self.variants)
        return tuning + sum(map(self.seeds_of, self.variants))

    def seeds_of(self, variant: str) -> int:
        """Return how many runs a variant has."""
        return self.variants[variant].seeds or self.seeds

    def tuned(self, variant: str, point: int) -> list[str]:
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
        shared = [*self.set, *self.grid[point], *self.asked]
        settings = [*shared, *own, f"training.seed={seed}"]
        last = {_key(setting): place for place, setting in enumerate(settings)}
        return [settings[place] for place in sorted(last.values())]


def _key(setting: str) -> str:
    return setting.partition("=")[0]


def study_names() -> list[str]:
    """Return the names of the studies that come with the package."""
    names = (Path(item.name) for item in _packaged().iterdir())
    return sorted(name.stem for name in names if name.suffix == ".toml")


def read_study(
    name: str, overrides: Sequence[str] = (), seeds: int | None = None
) -> Study:
    """Read a study that comes with the package, or a TOML file.

    A file may say ``like = NAME``, of a packaged study or of a file beside it: what it
    does not say itself is then as in that one.

    Args:
        name: of either.
        overrides: for all of its runs; see `Study.asked`.
        seeds: of every variant, if the study is not to decide.
    """
    try:
        study = Study.model_validate(_table(name))
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"{part}." for part in first["loc"])[:-1]
        told = f"{key}: " if key else ""
        raise SettingsError(f"{name}: {told}{what_is_wrong(first)}") from error
    for setting in overrides:
        _check_effect(study, setting)
    update: dict[str, Any] = {"asked": (*study.asked, *overrides)}
    if seeds is not None:
        update["variants"] = {
            key: Variant(set=variant.set, seeds=seeds)
            for key, variant in study.variants.items()
        }
    return study.model_copy(update=update)


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
    """Return what a study's file says, on top of what the one that it is like says."""
    own = name in study_names()
    path = _packaged() / f"{name}.toml" if own else Path(name)
    if not path.is_file():
        raise SettingsError(
            f"there is no file {name!r}, nor a study of that name: give the path of a "
            f"TOML file, or one of {', '.join(study_names())}"
        )
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # no TOML, or no UTF-8
        raise SettingsError(f"{name}: is no TOML file ({error})") from error
    like = table.pop("like", None)
    if like is None:
        return table
    if like not in study_names():
        like = str(path.parent / str(like))
    if like in (*seen, name):
        raise SettingsError(f"{name}: like: {like} is like this one itself")
    return {**_table(like, (*seen, name)), **table}


def _packaged() -> Path:
    return Path(str(files("perron.recipes"))) / "studies"
