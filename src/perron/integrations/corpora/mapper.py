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
from perron.kernels import wait_for_compiled
from perron.models.config import CONFIG, TOKENIZER, WEIGHTS, folder_files, read_config
from perron.pipeline import Pipeline, load, pair_mismatch


def model_fingerprint(folder: Path) -> str:
    """Return a digest of the weights, tokenizer and configuration of a model."""

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
def load_once(folder: str, fingerprint: str, pretokenized: bool) -> Pipeline:
    """Load a model once per process.

    Raises:
        DataError: If the model in the folder does not have this fingerprint.
    """
    if model_fingerprint(Path(folder)) != fingerprint:
        raise DataError(
            "the model has changed since the job was started. Start a new job, or "
            "restore the original model.",
            folder,
        )
    pipeline = load(folder)
    return pipeline.pretokenized() if pretokenized else pipeline


def set_num_threads(threads: int | None) -> None:
    """Set the number of torch threads in this process, unless it is None."""
    if threads is not None and torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


Task = Literal["predict", "encode"]


@dataclass
class TextMapper:
    """Add labels and probabilities, or vectors, to batches of texts.

    A mapper holds only plain settings, so it can be sent to other processes. Each
    process loads the model once, at its first batch. The settings include a digest of
    the model's files: two mappers that compute the same results are equal and have the
    same pickle.

    Attributes:
        model: Folder of a trained model. Every worker machine must be able to read it.
        task: ``predict`` adds ``label`` and ``probabilities`` (one per class);
            ``encode`` adds ``vector``.
        text: Name of the text column.
        text_pair: Name of the column of second texts, for pair models. Defaults to
            ``text_pair``.
        batch_size: Number of texts per forward pass.
        pretokenized: Whether texts are already tokenized, with tokens separated by
            whitespace.
        prefix: Prefix for the names of the new columns.
        threads: Number of torch threads in the worker process. None keeps the current
            number. Use 1 if there are as many processes as cores.
        labels: Names of the classes, read from the model.
        fingerprint: Digest of the model's files.
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
            raise ValueError(f"task must be predict or encode, got {self.task}.")
        for name, count in (("batch_size", self.batch_size), ("threads", self.threads)):
            if count is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}.")
        folder = Path(self.model).absolute()  # workers may run in another folder
        config = read_config(folder_files(folder))
        takes_pairs = config.settings.kind == "pair" and self.task == "predict"
        if self.text_pair is not None and not takes_pairs:
            fix = f"Remove text_pair={self.text_pair!r}."
            name = "encode" if self.task == "encode" else "this model"
            raise SettingsError(pair_mismatch(False, fix, name))
        if takes_pairs and self.text_pair is None:
            self.text_pair = "text_pair"
        self.model = str(folder)
        self.labels = config.labels
        self.fingerprint = model_fingerprint(folder)

    @property
    def new_fields(self) -> list[pa.Field]:
        """Names and Arrow types of the new columns."""
        return result_fields(self.task, self.labels, self.prefix)

    @property
    def spark_type(self) -> str:
        """Names and types of the new columns as a DDL string for ``pandas_udf``."""
        if self.task == "encode":
            return f"{_quote(self.prefix + 'vector')} array<float>"
        classes = ", ".join(f"{_quote(name)}: double" for name in self.labels)
        label, probabilities = (_quote(field.name) for field in self.new_fields)
        return f"{label} string, {probabilities} struct<{classes}>"

    def __call__(self, batch: Any) -> Any:
        """Return a batch of the same type with the new columns appended.

        Args:
            batch: Mapping from column names to lists or arrays, pandas DataFrame, or
                pyarrow Table or RecordBatch.
        """
        is_arrow = isinstance(batch, pa.Table | pa.RecordBatch)
        self.check_columns(batch.schema.names if is_arrow else list(batch))
        pairs = None if self.text_pair is None else batch[self.text_pair]
        added = self.map_texts(batch[self.text], pairs)
        if isinstance(batch, Mapping):
            return {**batch, **added}
        if not is_arrow:
            return batch.assign(**added)
        for column in self.new_fields:
            values = pa.array(added[column.name], column.type)
            batch = batch.append_column(column, values)
        return batch

    def check_columns(self, names: list[str]) -> None:
        """Raise a ValueError if an input column is missing or a new one exists."""
        for name in (self.text, self.text_pair):
            if name is not None and name not in names:
                raise ValueError(
                    f"column {name!r} does not exist; the columns are "
                    f"{', '.join(names)}."
                )
        check_new_columns(names, self.new_fields)

    def map_texts(self, texts: Iterable[str], pairs: Any = None) -> dict[str, Any]:
        """Return only the new columns, by name.

        Args:
            texts: Texts as a list, an array or a Series.
            pairs: Second texts of the same type, for pair models.
        """
        first = _to_strings(texts, self.text)
        second = None if pairs is None else _to_strings(pairs, str(self.text_pair))
        set_num_threads(self.threads)
        wait_for_compiled()  # so that a part is the same when it is computed again
        pipeline = load_once(str(self.model), self.fingerprint, self.pretokenized)
        return result_columns(
            pipeline, self.task, first, second, self.prefix, self.batch_size
        )

    def map_series(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield a DataFrame of the new columns for each Series of texts.

        Use it in an iterator ``pandas_udf`` of Spark. For pair models, a batch is a
        tuple of two Series.
        """
        import pandas as pd

        for batch in batches:
            columns = batch if isinstance(batch, tuple) else (batch,)
            yield pd.DataFrame(self.map_texts(*columns))


def result_fields(
    task: Task, labels: Sequence[str], prefix: str = ""
) -> list[pa.Field]:
    """Return the names and Arrow types of the columns that a task adds.

    Args:
        task: ``predict`` adds ``label`` and ``probabilities``; ``encode`` adds
            ``vector``.
        labels: Names of the classes.
        prefix: Prefix for the names of the columns.
    """
    if task == "encode":
        return [pa.field(prefix + "vector", pa.list_(pa.float32()))]
    classes = pa.struct([(name, pa.float64()) for name in labels])
    return [
        pa.field(prefix + "label", pa.string()),
        pa.field(prefix + "probabilities", classes),
    ]


def result_columns(
    pipeline: Pipeline,
    task: Task,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    prefix: str = "",
    batch_size: int = 64,
) -> dict[str, list[Any]]:
    """Compute the columns of `result_fields` for a batch of texts."""
    if task == "encode":
        return {prefix + "vector": list(pipeline.encode(texts, batch_size))}
    probabilities = pipeline.predict_proba(texts, pairs, batch_size)
    labels = pipeline.labels
    return {
        prefix + "label": [labels[index] for index in probabilities.argmax(1)],
        prefix + "probabilities": [
            dict(zip(labels, row, strict=True)) for row in probabilities.tolist()
        ],
    }


def check_new_columns(names: Collection[str], fields: Iterable[pa.Field]) -> None:
    """Raise a SettingsError if the input already has one of the columns."""
    for field_ in fields:
        if field_.name in names:
            raise SettingsError(
                f"the input already has a column {field_.name!r}. Add a prefix to the "
                "new columns, for example --prefix predicted_."
            )


def _to_strings(values: Any, column: str) -> list[str]:
    """Return a column as a list, checking that every value is a string."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        texts = values.to_pylist()
    else:
        texts = values.tolist() if hasattr(values, "tolist") else list(values)
    for row, value in enumerate(texts):
        if not isinstance(value, str):
            raise ValueError(
                f"column {column!r}, row {row} must be a string, got {value!r:.40}. "
                "Fill in or drop such rows first."
            )
    return texts


def _quote(name: str) -> str:
    """Quote a column name with backticks, as in Spark SQL."""
    return f"`{name.replace('`', '``')}`"
