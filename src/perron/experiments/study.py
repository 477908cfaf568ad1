"""A study: variants of a recipe, tuned alike and run with several seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from perron.errors import SettingsError
from perron.files import read_toml
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


def read_study(
    name: str, overrides: Sequence[str] = (), seeds: int | None = None
) -> Study:
    """Read a study from a TOML file.

    With ``like = "OTHER.toml"``, the path of another study relative to the file, the
    settings that the file leaves out are those of the other study.

    Args:
        name: Path of the file.
        overrides: Settings of all runs, see `Study.asked`.
        seeds: Number of runs of each variant. Defaults to the numbers in the study.
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
    """Read a study's file, on top of the file that its ``like`` names."""
    path = Path(name)
    if not path.is_file():
        raise SettingsError(
            f"study must be the path of a TOML file, got {name!r}, which is not a file."
            " The studies of the paper are in papers/gong2019/studies of a checkout."
        )
    table = read_toml(path)
    like = table.pop("like", None)
    if like is None:
        return table
    other = str(path.parent / str(like))
    if other in (*seen, name):
        raise SettingsError(f"{name}: like = {like!r} leads back to this file.")
    return {**_table(other, (*seen, name)), **table}
