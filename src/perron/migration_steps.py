"""Migration steps between versions of the file formats."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Table = dict[str, Any]
Kind = Literal[
    "model",  # config.json of a model
    "settings",  # settings.toml of a run, recipes
    "study",  # study file
    "checkpoint",  # header of checkpoint.safetensors
    "metrics",  # line of metrics.jsonl
    "result",  # result.json
    "record",  # record.json of a run, line of records.jsonl
    "pickle",  # state of a scikit-learn estimator
    "transformers",  # config.json of a transformers classifier
    "sentence_transformers",  # config.json of a sentence-transformers pooling
    "graph",  # explanation, with its version in "schema"
]


class Change(Protocol):
    """Function that converts a table to the next version, possibly in place."""

    def __call__(self, table: Table, /) -> Table: ...


@dataclass(frozen=True)
class Rename:
    """Move the value of a key, such as ``training.l2``, if it is set, to a new key."""

    old: str
    new: str

    def __call__(self, table: Table) -> Table:
        *path, key = self.old.split(".")
        parent = nested(table, path)
        if parent is not None and key in parent:
            _set_nested(table, self.new, parent.pop(key))
        return table


@dataclass(frozen=True)
class Drop:
    """Remove a key that newer versions do not have."""

    key: str

    def __call__(self, table: Table) -> Table:
        *path, key = self.key.split(".")
        parent = nested(table, path)
        if parent is not None:
            parent.pop(key, None)
        return table


@dataclass(frozen=True)
class Default:
    """Set a new key, if it is missing, to the behavior of older versions."""

    key: str
    value: Any

    def __call__(self, table: Table) -> Table:
        *path, key = self.key.split(".")
        parent = nested(table, path)
        if parent is None or key not in parent:
            _set_nested(table, self.key, self.value)
        return table


@dataclass(frozen=True)
class RenameOption:
    """Rename an option of an encoder or aggregator in the settings of a model.

    Attributes:
        role: ``encoder`` or ``aggregator``. Applies to words and sentences.
        component: Name of the component, such as ``centrality``.
        old: Old name of the option.
        new: New name, or None to drop the option.
    """

    role: Literal["encoder", "aggregator"]
    component: str
    old: str
    new: str | None

    def __call__(self, table: Table) -> Table:
        for key in (self.role, f"sentence_{self.role}"):
            options = table.get(key)
            if not isinstance(options, dict) or options.get("name") != self.component:
                continue
            if self.old in options:
                value = options.pop(self.old)
                if self.new is not None:
                    options[self.new] = value
        return table


def _split_at_random(table: Table) -> Table:
    """Split a file as in version 1, without stratification."""
    data = table.get("data")
    packaged = ("rotten-tomatoes", "imdb-25k")  # have their own split
    if data is not None and "dev" not in data and data.get("format") not in packaged:
        data.setdefault("stratify", False)
    return table


def _metrics_by_name(table: Table) -> Table:
    for part in ("dev", "test"):
        if table.get(part) is not None:
            table[part] = {"accuracy": table[part]}
    return table


def _weighted_counts(table: Table) -> Table:
    """Store the number of correct predictions as a float, for weighted texts."""
    if "correct" in table["state"]:
        table["state"]["correct"] = float(table["state"]["correct"])
    return table


def _pickle_model_files(table: Table) -> Table:
    """Store the files of a model folder; version 1 had its own serialization."""
    old = table.get("pipeline_")
    if old is not None:
        config = {"format": "perron-1", "model": json.loads(old["config"])}
        table["pipeline_"] = {
            "name": old["name"],
            "files": {
                "config.json": json.dumps(config).encode(),
                "model.safetensors": old["weights"],
                "tokenizer.json": old["tokenizer"].encode(),
            },
        }
    return table


def _nest_aggregator_options(table: Table) -> Table:
    """Move the options of the aggregator of a pooling module to a separate table."""
    name = table.pop("aggregator", "centrality")
    options = {key: table.pop(key) for key in list(table) if key not in _POOLING_KEYS}
    return {**table, "aggregator": {"name": name, **options}}


_POOLING_KEYS = ("dim", "include_prompt")


# Version 3 renames options to the terms of torch, transformers and scikit-learn.
_OPTIONS: dict[tuple[Literal["encoder", "aggregator"], str], dict[str, str]] = {
    ("aggregator", "centrality"): {
        "hidden": "hidden_dim",
        "heads": "num_heads",
        "source_scale": "source_init_gain",
        "values": "value",
        "reach": "max_relative_distance",
    },
    ("aggregator", "self-attention"): {
        "hidden": "hidden_dim",
        "queries": "num_queries",
    },
    ("aggregator", "intra-attention"): {"hidden": "hidden_dim"},
    ("aggregator", "dynamic-routing"): {
        "capsules": "num_capsules",
        "iterations": "num_iterations",
    },
    ("encoder", "bilstm"): {"hidden": "hidden_dim", "layers": "num_layers"},
    ("encoder", "cnn"): {"widths": "kernel_sizes", "filters": "num_filters"},
    ("encoder", "transformer"): {
        "hidden": "hidden_dim",
        "layers": "num_layers",
        "heads": "num_heads",
    },
    ("encoder", "hf"): {"marks": "keep_special_tokens"},
}
_SETTINGS = {
    "vector_spread": "vector_std",
    "data.tokenised": "data.pretokenized",
    "data.sentence_mark": "data.sentence_separator",
    "data.skip_bad": "data.skip_invalid",
    "data.train_rows": "data.max_train_rows",
    "training.l2": "training.weight_decay",
    "training.clip": "training.max_grad_norm",
    "training.average": "training.ema_decay",
    "training.accumulate": "training.num_micro_batches",
    "training.batch_size_low": "training.min_batch_size",
    "training.learning_rate_floor": "training.min_learning_rate",
    "training.decay": "training.learning_rate_decay",
    "training.decay_steps": "training.learning_rate_decay_steps",
}
_MODEL_SETTINGS = {
    "embedding.dim": "embedding.embedding_dim",
    "head.hidden": "head.hidden_dim",
}
# Keys of ``--set``: the keys of a recipe and the options of all components.
_OVERRIDES = {
    **_SETTINGS,
    **{f"model.{old}": f"model.{new}" for old, new in _MODEL_SETTINGS.items()},
    **{
        f"model.{prefix}{role}.{old}": f"model.{prefix}{role}.{new}"
        for (role, _), names in _OPTIONS.items()
        for old, new in names.items()
        for prefix in ("", "sentence_")
    },
}


def _rename_nested_options(settings: Table) -> Table:
    """Rename options of the solver and the connectivity, and the value ``flow``."""
    for role in ("aggregator", "sentence_aggregator"):
        options = settings.get(role)
        if not isinstance(options, dict) or options.get("name") != "centrality":
            continue
        if options.get("value") == "flow":
            options["value"] = "incoming"
        for key, names in (
            ("solver", {"max_steps": "max_iter", "grad_steps": "grad_iter"}),
            ("connectivity", _OPTIONS["aggregator", "centrality"]),
        ):
            inner = options.get(key)
            if isinstance(inner, dict):
                options[key] = {names.get(k, k): v for k, v in inner.items()}
    return settings


def _drop_unused_rank(settings: Table) -> Table:
    """Drop the rank of graphs that are not low-rank, where it used to be ignored."""
    for role in ("aggregator", "sentence_aggregator"):
        options = settings.get(role)
        if isinstance(options, dict) and options.get("name") == "centrality":
            connectivity = options.get("connectivity", "mlp")
            if isinstance(connectivity, dict):
                connectivity = connectivity.get("name")
            if connectivity in ("mlp", "bilinear", "query"):
                options.pop("rank", None)
    return settings


def _rename_override(override: str) -> str:
    """Rename the key of an override such as ``training.l2=0``."""
    key, separator, value = override.partition("=")
    key = _OVERRIDES.get(key, key)
    if key.endswith("aggregator.value"):
        value = value.replace("flow", "incoming")
    if value.startswith("{"):  # inline table with a component and its options
        for (role, component), names in _OPTIONS.items():
            if key.endswith(role) and component in value:
                for old, new in names.items():
                    value = re.sub(rf"\b{old}(?=\s*=)", new, value)
    return f"{key}{separator}{value}"


def _rename_overrides(study: Table) -> Table:
    """Rename the keys of all overrides in a study."""
    for key in ("set", "asked"):
        if key in study:
            study[key] = [_rename_override(each) for each in study[key]]
    if "grid" in study:
        study["grid"] = [
            [_rename_override(o) for o in point] for point in study["grid"]
        ]
    for variant in study.get("variants", {}).values():
        if "set" in variant:
            variant["set"] = [_rename_override(each) for each in variant["set"]]
    return study


def _rename_in_command(record: Table) -> Table:
    """Rename the keys after ``--set``, because a run is identified by its command."""
    words = shlex.split(record["command"])
    for index in range(1, len(words)):
        if words[index - 1] == "--set":
            words[index] = _rename_override(words[index])
    record["command"] = shlex.join(words)
    return record


def _rename_graph_keys(record: Table) -> Table:
    """Rename keys in the graphs of an explanation."""
    sentences = record.get("sentences")
    for graph in [*record.get("words", ()), *([sentences] if sentences else [])]:
        Rename("places", "spans")(graph)
        Rename("cut", "truncated")(graph)
        for head in graph.get("heads", ()):
            Rename("solver.steps", "solver.iterations")(head)
    return record


# Old pattern in tensor names -> new text. Old names are never reused, so renaming does
# not depend on the version.
TENSORS = {
    r"encoder\.onward\.": "encoder.forward_layers.",
    r"encoder\.homeward\.": "encoder.backward_layers.",
    r"encoder\.enter\.": "encoder.input_projection.",
    r"^optimiser\.": "optimizer.",
    r"^chance\.": "rng.",
}


# Version -> kind -> changes to the next version, in order. All kinds share the version
# numbers, so a change to the model settings is a single entry for all of them.
STEPS: dict[int, dict[Kind | Literal["model settings"], tuple[Change, ...]]] = {
    1: {
        "model": (),
        "settings": (_split_at_random,),
        "study": (),
        "checkpoint": (
            Rename("standing", "state"),
            Rename("state.best_accuracy", "state.best_score"),
            Rename("state.right", "state.correct"),
            _weighted_counts,
            Rename("state.seen", "state.examples"),
            Rename("state.without_best", "state.epochs_since_best"),
        ),
        "metrics": (
            Rename("train_loss", "train_log_loss"),
            Rename("dev_loss", "dev_log_loss"),
        ),
        "result": (
            Rename("dev_accuracy", "dev"),
            Rename("test_accuracy", "test"),
            Rename("commonest", "majority_share"),
            _metrics_by_name,
        ),
        "record": (_metrics_by_name,),
        "pickle": (_pickle_model_files,),
        "transformers": (),
        "sentence_transformers": (_nest_aggregator_options,),
    },
    2: {
        "model": (Rename("model.vocabulary", "model.vocab_size"),),
        "model settings": (
            *(
                RenameOption(role, component, old, new)
                for (role, component), names in _OPTIONS.items()
                for old, new in names.items()
            ),
            _rename_nested_options,
            _drop_unused_rank,
            *(Rename(old, new) for old, new in _MODEL_SETTINGS.items()),
        ),
        "settings": tuple(Rename(old, new) for old, new in _SETTINGS.items()),
        "study": (_rename_overrides, Rename("asked", "user_overrides")),
        "record": (
            _rename_in_command,
            Rename("right", "correct"),
            Rename("tested", "test_digest"),
            Rename("tests", "test_size"),
        ),
        "pickle": (
            Rename("heads", "num_heads"),
            Rename("hidden_size", "hidden_dim"),
            Rename("embedding_size", "embedding_dim"),
            Default("lr_scheduler_type", "staircase"),
            Default("warmup_ratio", 0.0),
        ),
        "sentence_transformers": (Rename("dim", "embed_dim"),),
        "graph": (_rename_graph_keys,),
    },
}


def nested(table: Table, path: Sequence[str]) -> Table | None:
    """Return the table at a path, or None if it does not exist."""
    for key in path:
        value = table.get(key)
        if not isinstance(value, dict):
            return None
        table = value
    return table


def _set_nested(table: Table, path: str, value: Any) -> None:
    *parents, key = path.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
    table[key] = value
