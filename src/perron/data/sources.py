"""One file, or one split of the hub, read into the cache or found there."""

import logging
import os
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from datasets import Dataset

from perron.data.readers import columns_of, read_rows
from perron.data.readers.hub import open_hub, read_hub
from perron.data.readers.packaged import packaged_file
from perron.data.readers.rows import BadRows, checked
from perron.data.readers.snli import NO_AGREEMENT
from perron.data.settings import PACKAGED, DataSettings
from perron.data.store import facts_of, key_of, stored
from perron.errors import DataError

# The settings that change which rows a file gives.
_MATTER = {"format", "text", "text_pair", "label", "binary", "phrases"}
_MATTER |= {"skip_bad", "drop_labels"}

log = logging.getLogger(__name__)


class Source(NamedTuple):
    """The rows of one file and what was left out."""

    rows: Dataset
    place: str
    skipped: int
    dropped: int


def find_file(name: str, root: Path | None = None) -> Path:
    """Return where the file is: below root, else PERRON_DATA, else right here."""
    path = Path(name).expanduser()
    if root is not None:
        path = root / path
    elif home := os.environ.get("PERRON_DATA"):
        path = Path(home) / path if (Path(home) / path).exists() else path
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "no such file"
        advice = "--data-dir or PERRON_DATA tells where datasets are"
        raise DataError(f"{problem}; {advice}", path)
    return path


def source_files(settings: DataSettings, root: Path | None = None) -> list[Path]:
    """Return the files of the settings, none for the hub; raise if one is not there."""
    if settings.format == "hub":
        return []
    if settings.format in PACKAGED:
        return [packaged_file()]
    names = (settings.train, settings.dev, settings.test)
    return [find_file(name, root) for name in names if name is not None]


def read_source(
    settings: DataSettings, name: str | None, root: Path | None, training: bool = False
) -> Source:
    """Return the usable rows of one file, with their labels by name."""
    bad = BadRows(settings.skip_bad)
    settings = settings.model_copy(update={"phrases": settings.phrases and training})
    what = settings.model_dump(include=_MATTER)
    if settings.format == "hub":
        place = f"{settings.name} ({name})"
        columns = columns_of(settings)
        found = open_hub(str(settings.name), str(name), columns)
        key = key_of(what | {"place": place, "hub": found._fingerprint})
        rows = read_hub(found, place, columns, bad)
    else:
        packaged = settings.format in PACKAGED
        path = packaged_file() if packaged else find_file(str(name), root)
        place = str(path)
        key = key_of(what, [path])
        rows = read_rows(path, settings, bad)
    drop = set(settings.drop_labels)
    if settings.format == "snli":
        drop.add(NO_AGREEMENT)
    usable = checked(rows, place, bad, drop)
    data = stored(
        (row._asdict() for row in usable),
        _schema(is_pair=settings.text_pair is not None),
        key,
        facts=lambda: {
            "skipped": bad.skipped[place],
            "dropped": bad.dropped[place],
            "problems": bad.problems,
        },
    )
    facts = facts_of(data)
    for problem in facts["problems"]:
        log.warning("left out: %s", problem)
    return Source(data, place, facts["skipped"], facts["dropped"])


def _schema(is_pair: bool) -> pa.Schema:
    pair = [("pair", pa.string())] if is_pair else []
    return pa.schema(
        [("text", pa.string()), *pair, ("label", pa.string()), ("line", pa.int32())]
    )
