"""Format versions of the files that Perron writes, and the steps from older ones.

Every table in a file has its version under ``format_version``. Version 1 had no such
key. A change of a format is a line in `STEPS`: readers call `migrate` and know the
newest version alone, writers call `stamp`. An unknown key is an error of the reader,
and thus of the newest version; a step drops the keys that only an older version had.
"""

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from perron.errors import DataError

T = TypeVar("T")
Table = dict[str, Any]
Kind = Literal[
    "model",  # config.json of a model
    "settings",  # settings.toml of a run, recipes
    "study",  # the file of a study
    "checkpoint",  # header of checkpoint.safetensors
    "metrics",  # a line of metrics.jsonl
    "result",  # result.json
    "record",  # record.json of a run, a line of records.jsonl
    "pickle",  # the state of a scikit-learn estimator
    "transformers",  # config.json of a classifier of transformers
    "sentence_transformers",  # config.json of a pooling of sentence-transformers
    "graph",  # an explanation; its version is in "schema"
]
# Settings of a model are in files of several kinds, each at its place.
_PLACES: dict[Kind, tuple[str, ...]] = {
    "model": ("model", "settings"),
    "settings": ("model",),
    "pickle": (),  # the parameters encoder and aggregator
    "transformers": (),
    "sentence_transformers": (),
}

VERSION = "format_version"
_GRAPH = "perron-graph-"  # and the version, under "schema"


class Change(Protocol):
    """Turns a table of one version into the next; may change its argument."""

    def __call__(self, table: Table, /) -> Table: ...


@dataclass(frozen=True)
class Rename:
    """Moves a value to another key, such as ``training.l2``; no value, no change."""

    old: str
    new: str

    def __call__(self, table: Table) -> Table:
        *path, key = self.old.split(".")
        holder = _inner(table, path)
        if holder is not None and key in holder:
            _put(table, self.new, holder.pop(key))
        return table


@dataclass(frozen=True)
class Drop:
    """Removes a key that newer versions do not have."""

    key: str

    def __call__(self, table: Table) -> Table:
        *path, key = self.key.split(".")
        holder = _inner(table, path)
        if holder is not None:
            holder.pop(key, None)
        return table


@dataclass(frozen=True)
class Default:
    """Sets what older versions did where they could not say so."""

    key: str
    value: Any

    def __call__(self, table: Table) -> Table:
        *path, key = self.key.split(".")
        holder = _inner(table, path)
        if holder is None or key not in holder:
            _put(table, self.key, self.value)
        return table


@dataclass(frozen=True)
class RenameOption:
    """Renames an option of an encoder or aggregator, wherever its settings are.

    Attributes:
        role: ``encoder`` or ``aggregator``; that of sentences is changed as well.
        component: Name of the component, such as ``centrality``.
        old: Name of the option.
        new: New name; None drops the option.
    """

    role: Literal["encoder", "aggregator"]
    component: str
    old: str
    new: str | None

    def __call__(self, table: Table) -> Table:
        for place in (self.role, f"sentence_{self.role}"):
            options = table.get(place)
            if not isinstance(options, dict) or options.get("name") != self.component:
                continue
            if self.old in options:
                value = options.pop(self.old)
                if self.new is not None:
                    options[self.new] = value
        return table


def _split_at_random(table: Table) -> Table:
    """Let a file be split as version 1 did, without regard to classes."""
    data = table.get("data")
    packaged = ("rotten-tomatoes", "imdb-25k")  # have a split of their own
    if data is not None and "dev" not in data and data.get("format") not in packaged:
        data.setdefault("stratify", False)
    return table


def _metrics_by_name(table: Table) -> Table:
    for part in ("dev", "test"):
        if table.get(part) is not None:
            table[part] = {"accuracy": table[part]}
    return table


def _weighted_counts(table: Table) -> Table:
    """Let texts have weights: the number of correct predictions is a float."""
    if "correct" in table["state"]:
        table["state"]["correct"] = float(table["state"]["correct"])
    return table


def _files_of_a_model(table: Table) -> Table:
    """Let a pickle hold the files of a model folder; version 1 had its own codec."""
    held = table.get("pipeline_")
    if held is not None:
        config = {"format": "perron-1", "model": json.loads(held["config"])}
        table["pipeline_"] = {
            "name": held["name"],
            "files": {
                "config.json": json.dumps(config).encode(),
                "model.safetensors": held["weights"],
                "tokenizer.json": held["tokenizer"].encode(),
            },
        }
    return table


def _options_in_a_table(table: Table) -> Table:
    """Let a pooling have the options of its aggregator in a table of their own."""
    name = table.pop("aggregator", "centrality")
    options = {key: table.pop(key) for key in list(table) if key not in _OF_POOLING}
    return {**table, "aggregator": {"name": name, **options}}


_OF_POOLING = ("dim", "include_prompt")


# Version -> kind -> changes to the next version, in this order. All kinds share one
# count of versions: a change of the settings of a model is one line for all of them.
STEPS: dict[int, dict[Kind | Literal["model settings"], tuple[Change, ...]]] = {
    1: {
        "model": (),
        "settings": (_split_at_random,),
        "study": (),
        "checkpoint": (
            Rename("standing", "state"),
            Rename("state.best_accuracy", "state.best_score"),
            Rename("state.right", "state.correct"),
            _weighted_counts,
            Rename("state.seen", "state.examples"),
            Rename("state.without_best", "state.epochs_since_best"),
        ),
        "metrics": (
            Rename("train_loss", "train_log_loss"),
            Rename("dev_loss", "dev_log_loss"),
        ),
        "result": (
            Rename("dev_accuracy", "dev"),
            Rename("test_accuracy", "test"),
            Rename("commonest", "majority_share"),
            _metrics_by_name,
        ),
        "record": (_metrics_by_name,),
        "pickle": (_files_of_a_model,),
        "transformers": (),
        "sentence_transformers": (_options_in_a_table,),
    },
}


def current(kind: Kind) -> int:
    """Return the version that is written: that of the last change of the kind."""
    changed = [
        version
        for version, step in STEPS.items()
        if kind in step or (kind in _PLACES and "model settings" in step)
    ]
    return 1 + max(changed, default=0)


def stamp(kind: Kind, table: Mapping[str, Any]) -> Table:
    """Return a table with the version that is written as its first key."""
    return {VERSION: current(kind), **table}


def migrate(kind: Kind, table: object, where: str | Path | None = None) -> Table:
    """Return a table of any version in the newest one, without the version itself.

    Args:
        kind: What the table is.
        table: Plain data, as read from a file; is not changed.
        where: File that errors name.

    Raises:
        DataError: The table is of a newer version, or not of the one that it says, or
            not a table.
    """
    if not isinstance(table, Mapping):
        raise DataError(f"{kind} must be a table of keys, got {table!r}", where)
    content = dict(table)
    version = _take_version(kind, content, where)
    newest = current(kind)
    if version > newest:
        raise DataError(
            f"was written by a newer version of Perron (format {version}; this version "
            f"reads up to {newest}). Upgrade Perron.",
            where,
        )
    if version < newest:
        content = deepcopy(content)  # not for nothing: a graph can be large
    for number in range(version, newest):
        try:
            content = _next(kind, content, number)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"is not a valid {kind} of format {number} ({error!r})", where
            ) from error
    return content


def from_table(
    cls: type[T],
    kind: Kind,
    table: object,
    where: str | Path | None = None,
) -> T:
    """Return an instance of a dataclass from a table of any version.

    Args:
        cls: Dataclass whose fields are the keys of the newest version.
        kind: What the table is.
        table: Plain data, as read from a file.
        where: File that errors name.

    Raises:
        DataError: `migrate` refuses the table, or a key is unknown or missing.
    """
    content = migrate(kind, table, where)
    known = fields(cls)  # type: ignore[arg-type]  # mypy has no type of dataclasses
    if unknown := sorted(content.keys() - {field.name for field in known}):
        raise DataError(f"{unknown[0]}: there is no such key", where)
    for field in known:
        has_default = (field.default, field.default_factory) != (MISSING, MISSING)
        if field.name not in content and not has_default:
            raise DataError(f"{field.name}: is missing", where)
    return cls(**content)


def _next(kind: Kind, table: Table, version: int) -> Table:
    """Return a table of one version in the next."""
    step = STEPS.get(version, {})
    for change in step.get(kind, ()):
        table = change(table)
    settings = _inner(table, _PLACES[kind]) if kind in _PLACES else None
    if settings is not None:
        for change in step.get("model settings", ()):
            change(settings)
    return table


def _take_version(kind: Kind, table: Table, where: str | Path | None) -> int:
    """Remove the version from a table and return it."""
    if kind == "graph":
        schema = str(table.pop("schema", None))
        number = schema.removeprefix(_GRAPH)
        version = int(number) if number.isdecimal() and number != schema else None
        if version is None:
            raise DataError(f"schema must be {_GRAPH}N, got {schema!r}", where)
        return version
    if kind == "model" and VERSION not in table:
        if table.pop("format", None) != "perron-1":
            raise DataError(f"does not describe a Perron model (no {VERSION})", where)
        return 1
    version = table.pop(VERSION, 1)
    if type(version) is not int or version < 1:
        raise DataError(f"{VERSION} must be a positive integer, got {version!r}", where)
    return version


def _inner(table: Table, path: Sequence[str]) -> Table | None:
    """Return the table at a path; None if there is none."""
    for key in path:
        value = table.get(key)
        if not isinstance(value, dict):
            return None
        table = value
    return table


def _put(table: Table, path: str, value: Any) -> None:
    *holders, key = path.split(".")
    for holder in holders:
        table = table.setdefault(holder, {})
    table[key] = value
