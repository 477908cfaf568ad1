"""Write the files of version 1 of every format, with the answers expected from them.

Ran once, at commit 7ce6dd9, with the code and the tests of that commit on the path:

    PYTHONPATH=src:tests python make_version_1.py version_1

It uses modules of that commit that later ones may not have, so it is here to be read,
not to be run again. Left out are pictures and lock files, which nothing reads, and the
models of the runs of a study and of a comparison.
"""

import csv
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Transformer
from transformers import AutoTokenizer
from version_1_data import write_data, write_recipe_data, write_tiny_bert

import perron
from perron.integrations.hugging_face import CentralityForSequenceClassification
from perron.integrations.sentence_transformers import (
    AggregatorPooling,
    CentralityPooling,
)
from perron.sklearn import CentralityClassifier, CentralityVectorizer
from perron.training import read_recipe, train
from perron.training.runtime import (Stopped)
from perron.training.watchers import Watcher

TEXTS = [
    "the old kettle is near a bowl",
    "one small rake with seeds",
    "A Fence, near the oven!",
    "unseen words",
    "",
]
PAIRS = ["one spoon", "the hose is old", "a small fence", "bread", "soil"]
DOCUMENTS = [
    "The old kettle is near a bowl. One spoon is small.",
    "A rake with seeds! The soil is near the fence. The oven is old.",
    "",
]
PRETRAINED_TEXTS = ["the film was lovely", "dull", "unbelievable, un-fine", ""]
STOP_AT = 14  # in the second of the epochs

CENTRALITY = {"name": "centrality", "hidden": 3}
MODELS: dict[str, dict[str, Any]] = {
    "text": {},
    "text_options": {
        "aggregator": CENTRALITY
        | {
            "heads": 2,
            "norm": "l2",
            "activation": "relu",
            "source_scale": 0.5,
            "edge_dropout": 0.1,
            "values": "flow",
            "reach": 3,
        },
    },
    "text_low_rank": {
        "aggregator": CENTRALITY | {"connectivity": "low_rank", "rank": 2, "heads": 2}
    },
    "text_self_attention": {
        "encoder": {"name": "transformer", "hidden": 4, "layers": 1, "heads": 2},
        "aggregator": {"name": "self-attention", "queries": 2, "hidden": 3},
    },
    "text_dynamic_routing": {
        "encoder": {"name": "cnn", "widths": [2, 3], "filters": 2},
        "aggregator": {
            "name": "dynamic-routing",
            "capsules": 2,
            "iterations": 2,
            "reverse": True,
        },
    },
    "text_intra_attention": {
        "encoder": "none",
        "aggregator": {"name": "intra-attention", "hidden": 3},
    },
    "text_max": {"aggregator": "max"},
    "document": {
        "kind": "document",
        "sentence_encoder": {"name": "cnn", "widths": [1, 2], "filters": 2},
        "sentence_aggregator": CENTRALITY | {"connectivity": "query"},
    },
    "pair": {
        "kind": "pair",
        "aggregator": CENTRALITY | {"connectivity": "bilinear"},
    },
    "pretrained": {"encoder": {"name": "hf", "model": "tiny-bert", "marks": True}},
}
GRAPHS = (
    "text",
    "text_options",  # two heads
    "text_self_attention",  # no edges
    "text_max",  # no weights either
    "document",
    "pair",
    "pretrained",  # words of several pieces
)


def table(model: dict[str, Any], **training: Any) -> dict[str, Any]:
    """Return the settings of a run that takes a second."""
    kind = model.get("kind", "text")
    data = {"text": "sentences", "pair": "pairs", "document": "documents"}[kind]
    settings = {"format": "csv", "train": f"{data}.csv", "split": [0.7, 0.15, 0.15]}
    if kind == "pair":
        settings["text_pair"] = "other"
    return {
        "data": settings,
        "model": {
            "embedding": {"dim": 4},
            "encoder": {"name": "bilstm", "hidden": 3},
            "aggregator": CENTRALITY,
            "head": {"hidden": 3},
        }
        | model,
        "training": {
            "learning_rate": 0.05,
            "batch_size": 8,
            "batch_size_low": 4,
            "max_epochs": 3,
            "patience": 3,
            "precision": "fp32",
        }
        | training,
    }


def keep(source: Path, target: Path, *names: str) -> None:
    """Copy a folder, or those of its files, without pictures and lock files."""
    ignored = shutil.ignore_patterns("*.png", ".*")
    if not names:
        shutil.copytree(source, target, ignore=ignored)
        return
    target.mkdir(parents=True)
    for name in names:
        shutil.copy(source / name, target / name)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write one line per key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(content[key])}" for key in content]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def digits(values: np.ndarray) -> Any:
    return np.round(np.asarray(values, np.float64), 6).tolist()


def command(*arguments: object) -> None:
    words = [sys.executable, "-m", "perron", *map(str, arguments)]
    subprocess.run(words, check=True, env=os.environ | {"COLUMNS": "200"})


def answers(folder: Path) -> dict[str, Any]:
    """Return what a saved model says of a few texts."""
    pipeline = perron.load(folder)
    settings = pipeline.model.config.settings
    texts = DOCUMENTS if settings.kind == "document" else TEXTS
    texts = PRETRAINED_TEXTS if settings.encoder.name == "hf" else texts
    pairs = PAIRS if settings.kind == "pair" else None
    return {
        "texts": texts,
        "pairs": pairs,
        "labels": pipeline.labels,
        "probabilities": digits(pipeline.predict_proba(texts, pairs)),
        "vectors": digits(pipeline.encode(texts)),
    }


def write_models(out: Path) -> None:
    files = ("config.json", "model.safetensors", "tokenizer.json")
    for name, model in MODELS.items():
        settings = table(model)
        if name == "pretrained":
            settings["text"] = {"max_words": 20}
        train(read_recipe(settings), Path("model") / name)
        keep(Path("model") / name, out / "models" / name, *files)
        write_json(out / "models" / f"{name}.json", answers(out / "models" / name))


def write_pickles(out: Path) -> None:
    with open("sentences.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    sizes = {"hidden_size": 3, "embedding_size": 4, "learning_rate": 0.05}
    shared = {"max_iter": 3, "batch_size": 8, "random_state": 0, **sizes}
    classifier = CentralityClassifier(heads=2, **shared).fit(texts, labels)
    vectorizer = CentralityVectorizer(encoder="none", **shared).fit(texts, labels)
    folder = out / "pickles"
    folder.mkdir(parents=True)
    (folder / "classifier.pickle").write_bytes(pickle.dumps(classifier))
    (folder / "vectorizer.pickle").write_bytes(pickle.dumps(vectorizer))
    expected = {
        "texts": TEXTS,
        "classes": classifier.classes_.tolist(),
        "labels": classifier.predict(TEXTS).tolist(),
        "probabilities": digits(classifier.predict_proba(TEXTS)),
    }
    write_json(folder / "classifier.json", expected)
    vectors = digits(vectorizer.transform(TEXTS))
    write_json(folder / "vectorizer.json", {"texts": TEXTS, "vectors": vectors})


class StopAt(Watcher):
    """Asks the run to stop, as the system does, after a number of steps."""

    def step(self, standing, texts):
        if standing.step == STOP_AT:
            os.kill(os.getpid(), signal.SIGTERM)


def outcome(folder: Path) -> dict[str, Any]:
    """Return what a run that is over left, except for times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    for record in metrics:
        del record["seconds"], record["texts_per_second"]
    result = json.loads((folder / "result.json").read_text())
    with np.load(folder / "test_predictions.npz") as kept:
        predictions = {name: kept[name].tolist() for name in kept.files}
    return {
        "metrics": metrics,
        "best_epoch": result["best_epoch"],
        "parameters": result["parameters"],
        "test_predictions": predictions,
        "model": answers(folder),
    }


def write_random_numbers(out: Path) -> None:
    """Write some of torch's random numbers, which are not the same on every platform.

    Dropout and initial weights follow from them: a test of a run that has either needs
    to know whether its own random numbers are these.
    """
    torch.manual_seed(0)
    numbers = {
        "uniform": digits(torch.rand(8)),
        "normal": digits(torch.randn(24)),
        "dropout": digits(torch.dropout(torch.ones(64), 0.5, train=True)),
    }
    write_json(out / "random_numbers.json", numbers)


def write_interrupted(out: Path) -> None:
    model = {
        "embedding": {"dim": 4, "dropout": 0.2},
        "aggregator": CENTRALITY | {"edge_dropout": 0.2},
        "head": {"hidden": 3, "dropout": 0.2},
    }
    training = {"average": 0.8, "accumulate": 2, "encoder_learning_rate": 0.03}
    runs = {"plain": table({}), "averaged": table(model, **training)}
    for name, settings in runs.items():
        stopped = Path("interrupted") / name
        try:
            train(read_recipe(settings), stopped, watchers=[StopAt()])
        except Stopped:
            keep(stopped, out / "interrupted" / name)
        else:
            raise AssertionError("the run was not stopped")
        whole = Path("uninterrupted") / name
        train(read_recipe(settings), whole)
        write_json(out / "interrupted" / f"{name}.json", outcome(whole))


def write_finished(out: Path) -> None:
    keep(Path("uninterrupted/plain"), out / "finished" / "run")
    write_json(out / "finished" / "run.json", outcome(out / "finished" / "run"))


def write_graphs(out: Path) -> None:
    for name in GRAPHS:
        kind = MODELS[name].get("kind", "text")
        text = DOCUMENTS[1] if kind == "document" else TEXTS[0]
        text = PRETRAINED_TEXTS[2] if name == "pretrained" else text
        path = out / "graphs" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        pair = ["--pair", PAIRS[0]] if kind == "pair" else []
        model = out / "models" / name
        command("graph", model, text, *pair, "--format", "json", "--out", path)


def write_studies(out: Path) -> None:
    """Write a study and a comparison; each is a folder to run the command in."""
    settings = table({}, max_epochs=6, patience=6)
    settings["data"]["train"] = "../sentences.csv"
    for name in ("study", "compare"):
        Path(name).mkdir()
        write_toml(Path(name) / "recipe.toml", settings)
    study = {
        "title": "two poolings",
        "recipe": "recipe.toml",
        "set": ["model.head.hidden=2"],
        "grid": [["training.learning_rate=0.01"], ["training.learning_rate=0.06"]],
        "seeds": 2,
        "reference": "centrality",
        "variants": {
            "centrality": {},
            "mean": {"set": ["model.aggregator=mean"], "seeds": 2},
        },
    }
    write_toml(Path("study/study.toml"), study)
    home = Path.cwd()
    os.chdir(home / "study")
    command("study", "study.toml", "--out", "runs")
    os.chdir(home / "compare")
    command("compare", "recipe.toml", "--aggregators", "centrality,self-attention",
            "--seeds", 2, "--out", "runs")  # fmt: skip
    os.chdir(home)
    for path in [*Path("study/runs").glob("*/"), *Path("compare/runs").glob("*/")]:
        for name in ("config.json", "model.safetensors", "tokenizer.json", "README.md"):
            (path / name).unlink()
    keep(Path("study"), out / "study")
    keep(Path("compare"), out / "compare")


def write_toml(path: Path, content: dict[str, Any]) -> None:
    path.write_text(tomli_w.dumps(content))


def write_integrations(out: Path) -> None:
    bert = "tiny-bert"
    torch.manual_seed(3)
    options = CENTRALITY | {"heads": 2, "source_scale": 2.0, "reach": 4}
    model = CentralityForSequenceClassification.from_encoder(bert, options).eval()
    folder = out / "integrations" / "transformers"
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    batch = tokenizer(PRETRAINED_TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        logits = model(**batch).logits
    expected = {name: batch[name].tolist() for name in ("input_ids", "attention_mask")}
    expected["logits"] = digits(logits)
    write_json(out / "integrations" / "transformers.json", expected)
    poolings = {
        "centrality": CentralityPooling(4, hidden=3, values="flow"),
        "aggregator": AggregatorPooling(4, "self-attention", hidden=3, queries=2),
    }
    for name, pooling in poolings.items():
        folder = out / "integrations" / f"sentence_transformers_{name}"
        encoder = SentenceTransformer(modules=[Transformer(bert), pooling])
        encoder.save(str(folder), create_model_card=False)
        vectors = encoder.encode(PRETRAINED_TEXTS)
        expected = {"texts": PRETRAINED_TEXTS, "vectors": digits(vectors)}
        write_json(folder.with_suffix(".json"), expected)


def main() -> None:
    torch.set_num_threads(1)
    out = Path(sys.argv[1]).absolute()
    recipes = out / "recipes"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PERRON_CACHE"] = f"{folder}/cache"
        os.chdir(folder)
        write_data()
        write_random_numbers(out)
        write_tiny_bert(Path("tiny-bert"))
        write_models(out)
        write_pickles(out)
        write_interrupted(out)
        write_finished(out)
        write_graphs(out)
        write_studies(out)
        write_integrations(out)
        shutil.copy("sentences.csv", out)
        os.chdir(recipes)
        write_recipe_data(recipes)
        for path in sorted(recipes.glob("*.toml")):
            command("train", path.name, "--out", f"{folder}/{path.stem}", "--quiet")
            write_json(path.with_suffix(".json"), outcome(Path(folder) / path.stem))


if __name__ == "__main__":
    main()
