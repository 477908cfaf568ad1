"""User-facing errors, which commands print without a traceback."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_MAX_PROBLEMS = 5


# Names of settings in other libraries, and their names here.
_SYNONYMS = {
    synonym: name
    for name, synonyms in {
        "batch_size": "bs per_device_train_batch_size train_batch_size",
        "case": "do_lower_case lower lowercase",
        "dropout": "drop dropout_rate hidden_dropout_prob",
        "embedding_dim": "embedding_size",
        "hidden_dim": "dim hidden hidden_size units width",
        "learning_rate": "eta lr step_size",
        "lr_scheduler_type": "lr_scheduler schedule scheduler",
        "max_epochs": "epochs max_iter n_epochs num_epochs num_train_epochs",
        "max_grad_norm": "clip clip_norm grad_clip gradient_clip_val max_norm",
        "max_words": "max_len max_length max_seq_length max_tokens",
        "metric_for_best_model": "metric monitor",
        "min_count": "min_df min_freq",
        "name": "kind type",
        "num_heads": "heads n_heads num_attention_heads",
        "num_layers": "layers n_layers num_hidden_layers",
        "num_micro_batches": "accumulate grad_accum gradient_accumulation_steps",
        "patience": "early_stopping early_stopping_patience n_iter_no_change",
        "precision": "amp bf16 dtype fp16",
        "seed": "random_seed random_state",
        "warmup_ratio": "warmup warmup_steps",
        "weight_decay": "alpha decay l2 l2_penalty wd",
    }.items()
    for synonym in synonyms.split()
}


def suggest_name(name: str, known: Iterable[str], table: str = "") -> str:
    """Return a sentence that suggests a valid name, or lists all of them.

    Args:
        name: Unknown name.
        known: Valid names. Names in nested tables contain dots; they are suggested
            only if their last part is the same word or a synonym.
        table: Name of the table of settings, as a prefix of suggestions.
    """
    names = list(known)
    wanted = (name, _SYNONYMS.get(name))
    matches = [key for key in names if key.rpartition(".")[2] in wanted]
    own = [key for key in names if "." not in key]
    matches = matches or get_close_matches(name, own, n=1, cutoff=0.7)
    if matches:
        prefix = f"{table}." if table else ""
        return f"Did you mean {' or '.join(prefix + key for key in matches)}?"
    return f"Valid settings: {', '.join(own)}."


# Type of a pydantic error, or its first word -> expected value.
_EXPECTED = {
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "finite",
    "literal_error": "{expected}",
    "too_short": "a list of at least {min_length} values",
    "too_long": "a list of at most {max_length} values",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "string": "a string",
    "list": "a list",
    "tuple": "a list",
    "dict": "a table",
    "model": "a table of settings",
}


def expected_value(problem: Mapping[str, Any]) -> str | None:
    """Return the expected value of a pydantic error, such as "at least 1", if known."""
    kind = problem["type"]
    for name in (kind, kind.partition("_")[0]):
        if name in _EXPECTED:
            return _EXPECTED[name].format_map(problem.get("ctx", {}))
    return None


class PerronError(Exception):
    """Base class for errors that the user can fix; the message says how."""


class SettingsError(PerronError, ValueError):
    """Invalid setting, option or argument."""


class DataError(PerronError, ValueError):
    """File, or row of a file, that cannot be used.

    Attributes:
        problem: What is wrong.
        path: Path of the file.
        line: Line number in the file, from 1.
    """

    def __init__(
        self, problem: str, path: str | Path | None = None, line: int | None = None
    ) -> None:
        prefix = "" if path is None else f"{path}: "
        if path is not None and line is not None:
            prefix = f"{path}, line {line}: "
        super().__init__(prefix + problem)
        self.problem = problem
        self.path = path
        self.line = line


def differences(before: object, now: object, key: str = "") -> list[str]:
    """Return a message for each value that differs between two nested mappings."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return [
            line
            for name in dict.fromkeys([*before, *now])
            for line in differences(
                before.get(name), now.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if before == now else [f"{key} was {before!r}, is {now!r}"]


class InvalidRows:
    """Handler for invalid rows, which raises an error or skips and counts them.

    Attributes:
        skip: Whether to skip invalid rows.
        skipped: Number of invalid rows per file.
        dropped: Number of rows per file that were dropped because of their label.
        problems: First few error messages, to show to the user.
    """

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.skipped: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.problems: list[str] = []

    def report(self, path: str | Path, line: int | None, problem: str) -> None:
        """Raise a DataError, or count the row if invalid rows are skipped."""
        if not self.skip:
            advice = "Fix the file, or skip such rows with --skip-invalid."
            raise DataError(f"{problem}. {advice}", path, line)
        self.skipped[str(path)] += 1
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(str(DataError(problem, path, line)))


@contextmanager
def needs_extra(extra: str, option: str) -> Iterator[None]:
    """Convert import errors in the block into an error that names the missing extra.

    Args:
        extra: Extra of perron that installs the package.
        option: Option or command that requires it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("perron"):
            raise
        missing = error.name.partition(".")[0]
        raise SettingsError(
            f"{option} requires {missing}. Install it with: pip install "
            f"'perron[{extra}]'"
        ) from error
