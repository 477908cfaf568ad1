"""Format versions of the files that Perron writes, and migration to the newest one.

Every table in a file stores its version under ``format_version``. Version 1 had no such
key. A format change is an entry in `perron.migration_steps.STEPS`. Readers call
`migrate` and handle only the newest version, writers call `stamp`. An unknown key is an
error in the newest version; a step drops keys that only an older version had.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from perron.errors import DataError
from perron.migration_steps import STEPS, Kind, Table, nested

T = TypeVar("T")
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


def current_version(kind: Kind) -> int:
    """Return the version that is written: that of the last change of the kind."""
    changed = [
        version
        for version, step in STEPS.items()
        if kind in step or (kind in _PLACES and "model settings" in step)
    ]
    return 1 + max(changed, default=0)


def stamp(kind: Kind, table: Mapping[str, Any]) -> Table:
    """Return a table with the version that is written as its first key."""
    return {VERSION: current_version(kind), **table}


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
    newest = current_version(kind)
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
    settings = nested(table, _PLACES[kind]) if kind in _PLACES else None
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
