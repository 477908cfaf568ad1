"""`TextMapper`: one callable for Ray Data, `datasets.map` and Spark."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import torch

from perron.errors import DataError, SettingsError
from perron.files import digest
from perron.models.config import CONFIG, TOKENIZER, WEIGHTS, folder_files, read_config
from perron.pipeline import Pipeline, load, pair_mismatch


def fingerprint_of(folder: Path) -> str:
    """Return a digest of weights, words and configuration."""

    def digests() -> Iterator[bytes]:
        for name in (CONFIG, TOKENIZER, WEIGHTS):
            try:
                with (folder / name).open("rb") as file:
                    yield hashlib.file_digest(file, "sha256").digest()
            except OSError as error:
                problem = f"cannot be read ({error.strerror})"
                raise DataError(problem, folder / name) from error

    return digest(digests())


@lru_cache(maxsize=2)
def loaded(folder: str, fingerprint: str, pretokenized: bool) -> Pipeline:
    """Load a model once a process, and only the one that was asked for.

    Raises:
        DataError: there is another model in the folder by now.
    """
    if fingerprint_of(Path(folder)) != fingerprint:
        raise DataError(
            "holds another model than when this work began: begin again, or put the "
            "first one back",
            folder,
        )
    pipeline = load(folder)
    return pipeline.pretokenized() if pretokenized else pipeline


def limit_threads(threads: int | None) -> None:
    """Let torch use that many threads in this process; None leaves it as it is."""
    if threads is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


Task = Literal["predict", "encode"]


@dataclass
class TextMapper:
    """Adds labels and probabilities, or vectors, to batches of texts.

    It holds plain settings only, so that it can be sent to other processes. There the
    model is loaded when the first batch comes, and once a process. A digest of the
    model's files is one of the settings: two mappers are equal, and have the same
    pickle, if they compute the same.

    Attributes:
        model: folder of a trained model; every machine that computes must see it.
        task: ``predict`` adds ``label`` and ``probabilities``, one of each class;
            ``encode`` adds ``vector``.
        text: column of the text.
        text_pair: column of the second text, for pair models; ``text_pair`` unless
            given.
        batch_size: texts that are computed together.
        pretokenized: words are parted by blanks already.
        prefix: put before the names of the new columns.
        threads: of torch in the process that computes; None leaves them as they are.
            One is best where there are as many processes as cores.
        labels: names of the classes, found in the model.
        fingerprint: digest of the model's files.
    """

    model: str | Path
    task: Task = "predict"
    text: str = "text"
    text_pair: str | None = None
    batch_size: int = 64
    pretokenized: bool = False
    prefix: str = ""
    threads: int | None = None
    labels: tuple[str, ...] = field(init=False)
    fingerprint: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.task not in get_args(Task):
            raise ValueError(f"task must be predict or encode, but came as {self.task}")
        for name, count in (("batch_size", self.batch_size), ("threads", self.threads)):
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, but came as {count}")
        folder = Path(self.model).absolute()  # workers may be at home elsewhere
        config = read_config(folder_files(folder))
        reads_pairs = config.settings.kind == "pair" and self.task == "predict"
        if self.text_pair is not None and not reads_pairs:
            fix = f"Leave out text_pair {self.text_pair!r}."
            who = "encode" if self.task == "encode" else "this model"
            raise SettingsError(pair_mismatch(False, fix, who))
        if reads_pairs and self.text_pair is None:
            self.text_pair = "text_pair"
        self.model = str(folder)
        self.labels = config.labels
        self.fingerprint = fingerprint_of(folder)

    @property
    def new_fields(self) -> list[pa.Field]:
        """The columns that are added, with their Arrow types."""
        return result_fields(self.task, self.labels, self.prefix)

    @property
    def spark_type(self) -> str:
        """The columns that are added, as ``pandas_udf`` wants to be told of them."""
        if self.task == "encode":
            return f"{_quoted(self.prefix + 'vector')} array<float>"
        shares = ", ".join(f"{_quoted(name)}: double" for name in self.labels)
        label, probabilities = (_quoted(field.name) for field in self.new_fields)
        return f"{label} string, {probabilities} struct<{shares}>"

    def __call__(self, batch: Any) -> Any:
        """Return a batch of the same kind with the new columns after its own.

        Args:
            batch: lists or arrays by name, a pandas DataFrame, or a pyarrow Table or
                RecordBatch.
        """
        is_arrow = isinstance(batch, pa.Table | pa.RecordBatch)
        self.check(batch.schema.names if is_arrow else list(batch))
        pairs = None if self.text_pair is None else batch[self.text_pair]
        added = self.of_texts(batch[self.text], pairs)
        if isinstance(batch, Mapping):
            return {**batch, **added}
        if not is_arrow:
            return batch.assign(**added)
        for column in self.new_fields:
            values = pa.array(added[column.name], column.type)
            batch = batch.append_column(column, values)
        return batch

    def check(self, names: list[str]) -> None:
        """Raise a ValueError if a column is missing, or in the way of a new one."""
        for name in (self.text, self.text_pair):
            if name is not None and name not in names:
                raise ValueError(f"no column {name!r}; there are: {', '.join(names)}")
        check_new_columns(names, self.new_fields)

    def of_texts(self, texts: Iterable[str], pairs: Any = None) -> dict[str, Any]:
        """Return the new columns, by name, for texts alone.

        Args:
            texts: in a list, an array or a Series.
            pairs: the second texts, likewise, for pair models.
        """
        first = _strings(texts, self.text)
        second = None if pairs is None else _strings(pairs, str(self.text_pair))
        limit_threads(self.threads)
        pipeline = loaded(str(self.model), self.fingerprint, self.pretokenized)
        return result_columns(
            pipeline, self.task, first, second, self.prefix, self.batch_size
        )

    def series(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a DataFrame of the new columns for each Series of texts.

        This is what Spark's iterator ``pandas_udf`` asks for. For pairs a batch is two
        Series.
        """
        import pandas as pd

        for batch in batches:
            columns = batch if isinstance(batch, tuple) else (batch,)
            yield pd.DataFrame(self.of_texts(*columns))


def result_fields(
    task: Task, labels: Sequence[str], prefix: str = ""
) -> list[pa.Field]:
    """Return the columns that a task adds to a table, with their Arrow types.

    Args:
        task: ``predict`` adds ``label`` and ``probabilities``, ``encode`` ``vector``.
        labels: Names of the classes.
        prefix: Put before the names of the columns.
    """
    if task == "encode":
        return [pa.field(prefix + "vector", pa.list_(pa.float32()))]
    shares = pa.struct([(name, pa.float64()) for name in labels])
    return [
        pa.field(prefix + "label", pa.string()),
        pa.field(prefix + "probabilities", shares),
    ]


def result_columns(
    pipeline: Pipeline,
    task: Task,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    prefix: str = "",
    batch_size: int = 64,
) -> dict[str, list[Any]]:
    """Compute the columns of `result_fields` for some texts."""
    if task == "encode":
        return {prefix + "vector": list(pipeline.encode(texts, batch_size))}
    rows = pipeline.predict_proba(texts, pairs, batch_size)
    labels = pipeline.labels
    return {
        prefix + "label": [labels[place] for place in rows.argmax(1)],
        prefix + "probabilities": [
            dict(zip(labels, row, strict=True)) for row in rows.tolist()
        ],
    }


def check_new_columns(names: Collection[str], fields: Iterable[pa.Field]) -> None:
    """Raise a SettingsError if a table already has one of the columns."""
    for field_ in fields:
        if field_.name in names:
            raise SettingsError(
                f"columns of the results must be new, got {field_.name!r}, which the "
                "texts have already. Give the new columns a prefix, such as "
                "--prefix predicted_."
            )


def _strings(values: Any, column: str) -> list[str]:
    """Return texts as a list of strings; anything else is named by column and row."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        listed = values.to_pylist()
    else:
        listed = values.tolist() if hasattr(values, "tolist") else list(values)
    for row, value in enumerate(listed):
        if not isinstance(value, str):
            raise ValueError(
                f"column {column!r}, row {row}: {value!r:.40} is not a text; fill in "
                "or leave out such rows first"
            )
    return listed


def _quoted(name: str) -> str:
    """Return a name as Spark takes any: between backticks."""
    return f"`{name.replace('`', '``')}`"
