"""Format versions of the files that Perron writes, and migration of older files.

Each table in a file stores its version under ``format_version``; version 1 did not have
this key. Format changes are entries in `perron.migration_steps.STEPS`. Readers call
`migrate` and handle only the newest version. Writers call `stamp`. An unknown key in
the newest version is an error, so a step must drop keys that are no longer used.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from perron.errors import DataError
from perron.migration_steps import STEPS, TENSORS, Kind, Table, nested

T = TypeVar("T")
# Path of the model settings in each kind of file that contains them.
_MODEL_SETTINGS_PATHS: dict[Kind, tuple[str, ...]] = {
    "model": ("model", "settings"),
    "settings": ("model",),
    "pickle": (),  # parameters encoder and aggregator
    "transformers": (),
    "sentence_transformers": (),
}

VERSION = "format_version"
_GRAPH_SCHEMA = "perron-graph-"  # followed by the version, under "schema"


def current_version(kind: Kind) -> int:
    """Return the newest version of a kind, the version after its last change."""
    changed = [
        version
        for version, step in STEPS.items()
        if kind in step or (kind in _MODEL_SETTINGS_PATHS and "model settings" in step)
    ]
    return 1 + max(changed, default=0)


def stamp(kind: Kind, table: Mapping[str, Any]) -> Table:
    """Return a table with the newest version as its first key."""
    return {VERSION: current_version(kind), **table}


def migrate(kind: Kind, table: object, where: str | Path | None = None) -> Table:
    """Convert a table of any version to the newest one and remove the version.

    Args:
        kind: Kind of the table.
        table: Table as read from a file. It is not modified.
        where: File to name in errors.

    Raises:
        DataError: If the table has a newer version, does not match its version, or is
            not a table.
    """
    if not isinstance(table, Mapping):
        raise DataError(f"{kind} must be a table, got {table!r}", where)
    content = dict(table)
    version = _pop_version(kind, content, where)
    newest = current_version(kind)
    if version > newest:
        raise DataError(
            f"was written by a newer version of Perron (format {version}; this version "
            f"reads up to {newest}). Upgrade Perron.",
            where,
        )
    if version < newest:
        content = deepcopy(content)  # only if needed: a graph can be large
    for number in range(version, newest):
        try:
            content = _upgrade(kind, content, number)
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
    """Create a dataclass instance from a table of any version.

    Args:
        cls: Dataclass whose fields are the keys of the newest version.
        kind: Kind of the table.
        table: Table as read from a file.
        where: File to name in errors.

    Raises:
        DataError: If the table cannot be migrated, or a key is unknown or missing.
    """
    content = migrate(kind, table, where)
    known = fields(cls)  # type: ignore[arg-type]  # T cannot be bound to dataclasses
    if unknown := sorted(content.keys() - {field.name for field in known}):
        raise DataError(f"{unknown[0]} is not a valid key", where)
    for field in known:
        has_default = (field.default, field.default_factory) != (MISSING, MISSING)
        if field.name not in content and not has_default:
            raise DataError(f"{field.name} is missing", where)
    return cls(**content)


def _upgrade(kind: Kind, table: Table, version: int) -> Table:
    """Convert a table from one version to the next."""
    step = STEPS.get(version, {})
    for change in step.get(kind, ()):
        table = change(table)
    path = _MODEL_SETTINGS_PATHS.get(kind)
    settings = None if path is None else nested(table, path)
    if settings is not None:
        for change in step.get("model settings", ()):
            change(settings)
    return table


def _pop_version(kind: Kind, table: Table, where: str | Path | None) -> int:
    """Remove the version from a table and return it."""
    if kind == "graph":
        schema = str(table.pop("schema", None))
        number = schema.removeprefix(_GRAPH_SCHEMA)
        version = int(number) if number.isdecimal() and number != schema else None
        if version is None:
            raise DataError(f"schema must be {_GRAPH_SCHEMA}N, got {schema!r}", where)
        return version
    if kind == "model" and VERSION not in table:
        if table.pop("format", None) != "perron-1":
            raise DataError(f"is not a Perron model (no {VERSION})", where)
        return 1
    version = table.pop(VERSION, 1)
    if type(version) is not int or version < 1:
        raise DataError(f"{VERSION} must be a positive integer, got {version!r}", where)
    return version


def tensor_name(name: str) -> str:
    """Return the current name of a tensor from a file of any version."""
    for old, new in TENSORS.items():
        name = re.sub(old, new, name)
    return name
