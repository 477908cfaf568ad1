"""Studies: variants of a recipe with the same tuning budget and several seeds each."""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from perron.errors import DataError, SettingsError
from perron.files import read_toml
from perron.migrations import migrate
from perron.models.config import PositiveInt, Settings, problems
from perron.pooling import AGGREGATORS
from perron.registry import component_options
from perron.text.datasets import source_files
from perron.training.recipe import SETTINGS, Recipe, read_recipe, recipe_table

Overrides = tuple[str, ...]  # "training.seed=3", as for --set
BaselineName = Literal["tfidf", "mean"]
# Features of each baseline. The classifier is logistic regression.
BASELINES: dict[BaselineName, str] = {
    "tfidf": "TF-IDF of words and of pairs of adjacent words",
    "mean": "the mean of the states of a frozen pretrained encoder, or of word vectors",
}


class Variant(Settings):
    """A variant of the recipe."""

    set: Overrides = ()
    seeds: PositiveInt | None = None  # defaults to the study's
    # Logistic regression instead of a model; see `BASELINES`. It is deterministic, so
    # it has one run, and tunes only its own regularization.
    baseline: BaselineName | None = None

    @model_validator(mode="after")
    def _baselines_have_no_seeds(self) -> "Variant":
        if self.baseline is not None and self.seeds is not None:
            raise ValueError(
                "seeds must not be set for a baseline, which is deterministic."
            )
        return self


class Study(Settings):
    """Variants of a recipe, and the grid on which each of them is tuned.

    For each variant, every grid point is run with seed 0. The point with the best dev
    accuracy is then run with the remaining seeds. All variants are thus tuned with the
    same budget, and none of them on test data.
    """

    title: str
    recipe: str
    set: Overrides = ()  # for all runs
    grid: Annotated[tuple[Overrides, ...], Field(min_length=1)] = ((),)
    seeds: PositiveInt = 3
    # Variant that the others are tested against. Defaults to the first one.
    reference: str | None = None
    speed_reference: str | None = None  # variant that times are relative to
    variants: Annotated[dict[str, Variant], Field(min_length=1)]
    # Overrides from the command line. They take precedence over the grid, but not over
    # the variants.
    user_overrides: Overrides = ()

    @model_validator(mode="after")
    def _references_are_variants(self) -> "Study":
        for key in ("reference", "speed_reference"):
            name = getattr(self, key)
            if name is not None and name not in self.variants:
                raise ValueError(f"{key} must be the name of a variant, got {name!r}.")
        if self.speed_reference and self.variants[self.speed_reference].baseline:
            raise ValueError(
                f"speed_reference must not be a baseline, got {self.speed_reference!r}."
                " A baseline has no epochs."
            )
        return self

    @property
    def reference_variant(self) -> str:
        """Name of the variant that the others are tested against."""
        return self.reference or next(iter(self.variants))

    @property
    def num_runs(self) -> int:
        """Total number of runs."""
        return sum(
            self.num_points(name) - 1 + self.num_seeds(name) for name in self.variants
        )

    def num_seeds(self, variant: str) -> int:
        """Return the number of seeds of a variant."""
        if self.variants[variant].baseline is not None:
            return 1
        return self.variants[variant].seeds or self.seeds

    def num_points(self, variant: str) -> int:
        """Return the number of grid points that a variant is tuned over."""
        return 1 if self.variants[variant].baseline is not None else len(self.grid)

    def tuned_settings(self, variant: str, point: int) -> list[str]:
        """Return the settings that a grid point tunes, with their effective values.

        Values of the grid point may be overridden by `user_overrides` and the variant.
        Empty if the grid has only one point.
        """
        if self.num_points(variant) == 1:
            return []
        keys = {_key(setting) for setting in self.grid[point]}
        settings = self.overrides(variant, point, seed=0)
        return [setting for setting in settings if _key(setting) in keys]

    def overrides(self, variant: str, point: int, seed: int) -> list[str]:
        """Return the overrides of one run; the last one wins for each key."""
        own = self.variants[variant]
        is_trained = own.baseline is None
        grid = self.grid[point] if is_trained else ()
        settings = [*self.set, *grid, *self.user_overrides, *own.set]
        settings += [f"training.seed={seed}"] if is_trained else []
        last = {_key(setting): index for index, setting in enumerate(settings)}
        return [settings[index] for index in sorted(last.values())]


@dataclass(frozen=True)
class Trial:
    """One run of a study.

    Attributes:
        study: Study.
        variant: Name of the variant.
        point: Index of the grid point.
        seed: Random seed.
    """

    study: Study
    variant: str
    point: int
    seed: int

    @property
    def baseline(self) -> BaselineName | None:
        """Name of the baseline; None for a model."""
        return self.study.variants[self.variant].baseline

    @property
    def command(self) -> str:
        """Command that reproduces this run."""
        settings = self.study.overrides(self.variant, self.point, self.seed)
        options = [word for setting in settings for word in ("--set", setting)]
        command = "train"
        if self.baseline is not None:
            command = "compare"
            options += ["--aggregators", "", "--baselines", self.baseline]
        return shlex.join(["perron", command, self.study.recipe, *options])

    @property
    def folder_name(self) -> str:
        """Name of the folder of the run."""
        name = re.sub(r"[^\w.=-]+", "-", self.variant)
        return f"{name}-point{self.point}-seed{self.seed}"

    @property
    def lock_name(self) -> str:
        """Name of the lock file in the folder of the study."""
        return f".{self.folder_name}.lock"

    def run_folder(self, folder: Path) -> Path:
        """Return the folder of the run inside the folder of the study.

        Folders of earlier versions of ``perron compare`` are recognized.
        """
        earlier = folder / f"{re.sub('[:=,]', '-', self.variant)}-{self.seed}"
        own = folder / self.folder_name
        is_earlier = not own.exists() and (earlier / SETTINGS).exists()
        return earlier if self.point == 0 and is_earlier else own

    def recipe(self) -> Recipe:
        """Return the settings of the run."""
        settings = self.study.overrides(self.variant, self.point, self.seed)
        where = f"{self.study.title}, {self.variant}"
        return read_recipe(recipe_table(self.study.recipe), settings, where)

    def data_bytes(self, root: Path | None) -> int | None:
        """Return the total size of the data files; None if they do not exist."""
        try:
            files = source_files(self.recipe().data, root)
        except DataError:
            return None
        return sum(path.stat().st_size for path in files) or None


def all_trials(study: Study) -> Iterator[Trial]:
    """Yield every possible run of a study, whichever grid points turn out best."""
    for name in study.variants:
        for point in range(study.num_points(name)):
            for seed in range(study.num_seeds(name)):
                yield Trial(study, name, point, seed)


def _key(setting: str) -> str:
    return setting.partition("=")[0]


def read_study(
    name: str, overrides: Sequence[str] = (), seeds: int | None = None
) -> Study:
    """Read a study from a TOML file.

    With ``like = "OTHER.toml"``, a path relative to the file, settings that are missing
    from the file are taken from the other study.

    Args:
        name: Path of the file.
        overrides: Overrides for all runs; see `Study.user_overrides`.
        seeds: Number of seeds per variant. Defaults to the numbers in the study.
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
            key: variant
            if variant.baseline
            else variant.model_copy(update={"seeds": seeds})
            for key, variant in study.variants.items()
        }
    return study.model_copy(update=update)


def aggregator_study(
    recipe: Recipe,
    file: str,
    aggregators: Sequence[str],
    seeds: int,
    title: str,
    baselines: Sequence[BaselineName] = (),
) -> Study:
    """Create a study that compares aggregators, with one variant for each.

    The reference is centrality, or the first aggregator if centrality is not compared.
    Times are relative to self-attention.

    Args:
        recipe: Settings shared by all variants.
        file: Path of the recipe, for the commands of the runs.
        aggregators: Names of aggregators, optionally with settings, such as
            ``dynamic-routing:reverse=true,num_capsules=4``.
        seeds: Number of seeds.
        title: Title of the table.
        baselines: Names of baselines to compare the aggregators with.
    """
    variants = {name: Variant(set=_overrides(recipe, name)) for name in aggregators}
    variants |= {f"{name} + LR": Variant(baseline=name) for name in baselines}
    return Study(
        title=title,
        recipe=file,
        seeds=seeds,
        reference="centrality" if "centrality" in variants else None,
        speed_reference="self-attention" if "self-attention" in variants else None,
        variants=variants,
    )


def _overrides(recipe: Recipe, aggregator: str) -> Overrides:
    """Return the overrides that set the aggregator of a recipe.

    The recipe's own aggregator keeps its options. Another one inherits ``hidden_dim``,
    so that both have about the same number of parameters.
    """
    name, _, text = aggregator.partition(":")
    options = tuple(
        f"model.aggregator.{option}" for option in text.split(",") if option
    )
    own = recipe.model.aggregator
    if name == own.name:
        return options
    hidden_dim = getattr(own, "hidden_dim", None)
    if hidden_dim is not None and "hidden_dim" in component_options(AGGREGATORS[name]):
        options = (f"model.aggregator.hidden_dim={hidden_dim}", *options)
    return (f"model.aggregator={name}", *options)


def _check_effect(study: Study, setting: str) -> None:
    """Raise an error if every variant overrides a setting from the command line."""
    key = _key(setting)
    if key == "training.seed":
        raise SettingsError(
            f"--set {setting} has no effect, because a study sets the seeds itself. "
            "Use --seeds."
        )
    # Setting a table also sets everything inside it.
    shadowed = [
        name
        for name, variant in study.variants.items()
        if any(f"{key}.".startswith(f"{_key(own)}.") for own in variant.set)
    ]
    if len(shadowed) == len(study.variants):
        raise SettingsError(
            f"--set {setting} has no effect, because every variant of {study.title} "
            "sets it. To change it, write a study file with like = ... and your own "
            "variants."
        )


def _table(name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read the file of a study, merged with the file named by its ``like`` setting."""
    path = Path(name)
    if not path.is_file():
        raise SettingsError(
            f"study must be the path of a TOML file, got {name!r}, which does not "
            "exist. The paper's studies are in papers/gong2019/studies in the "
            "repository."
        )
    table = migrate("study", read_toml(path), path)
    like = table.pop("like", None)
    if like is None:
        return table
    other = str(path.parent / str(like))
    if other in (*seen, name):
        raise SettingsError(f"{name}: like = {like!r} is a circular reference.")
    return {**_table(other, (*seen, name)), **table}
