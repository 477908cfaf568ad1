"""Texts and the encoder that make_version_1.py trains with."""

import csv
import random
from pathlib import Path

import torch
from tiny_bert import PIECES, tiny_tokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

TOPICS = {
    "garden": ["rake", "fence", "seeds", "hose", "soil"],
    "kitchen": ["kettle", "oven", "spoon", "bowl", "bread"],
}
PLAIN = ["the", "a", "old", "small", "near", "with", "is", "one"]


def sentence(chance: random.Random, topic: str) -> str:
    words = chance.choices(PLAIN, k=chance.randint(2, 5))
    for _ in range(chance.randint(1, 2)):
        words.insert(chance.randint(0, len(words)), chance.choice(TOPICS[topic]))
    return " ".join(words)


def write_csv(
    path: str | Path, header: list[str], rows: list[list[str]], mark=","
) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=mark, lineterminator="\n")
        writer.writerows([header, *rows])


def write_data() -> None:
    """Write texts whose topic a few words decide; one label of ten is wrong."""
    chance = random.Random(7)
    names = list(TOPICS)
    texts, pairs, documents = [], [], []
    for row in range(96):
        topic, other = names[row % 2], chance.choice(names)
        label = names[1 - row % 2] if chance.random() < 0.1 else topic
        texts.append([sentence(chance, topic), label])
        relation = "same" if topic == other else "different"
        pairs.append([sentence(chance, topic), sentence(chance, other), relation])
        parts = [sentence(chance, topic) for _ in range(chance.randint(1, 4))]
        documents.append([". ".join(parts) + ".", topic])
    write_csv("sentences.csv", ["text", "label"], texts)
    write_csv("pairs.csv", ["text", "other", "label"], pairs[:48])
    write_csv("documents.csv", ["text", "label"], documents[:40])


def write_recipe_data(folder: Path) -> None:
    """Write what the recipes read; the recipes themselves were written by hand."""
    chance = random.Random(8)
    rows = [[sentence(chance, name).title(), name] for name in [*TOPICS] * 34]
    rows[3][1], rows[8][1] = "unsure", ""  # to be dropped, and to be skipped
    write_csv(folder / "train.tsv", ["sentence", "topic"], rows[:56], "\t")
    write_csv(folder / "test.tsv", ["sentence", "topic"], rows[56:], "\t")
    vectors = []
    words = [word for words in (PLAIN, *TOPICS.values()) for word in words]
    for word in words[::2]:
        numbers = [f"{chance.gauss(0, 1):.3f}" for _ in range(4)]
        vectors.append(" ".join([word.title(), *numbers]))
    (folder / "vectors.txt").write_text("\n".join(vectors) + "\n")
    documents = [
        ["|".join(sentence(chance, name) for _ in range(chance.randint(1, 4))), name]
        for name in [*TOPICS] * 15
    ]
    write_csv(folder / "documents.csv", ["text", "label"], documents)
    pairs = [
        [sentence(chance, one), sentence(chance, other), f"{one == other}"]
        for one in TOPICS
        for other in [*TOPICS] * 10
    ]
    write_csv(folder / "pairs.csv", ["first", "second", "relation"], pairs)
    grades = {"garden": "1", "kitchen": "4"}
    trees = []
    for name in [*TOPICS] * 10:
        words = sentence(chance, name).split()
        tree = f"(2 {words[-1]})"
        for word in words[-2::-1]:
            tree = f"({grades[name]} (2 {word}) {tree})"
        trees.append(tree)
    (folder / "trees.txt").write_text("\n".join(trees) + "\n")


def write_tiny_bert(folder: Path) -> None:
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=4,
        max_position_embeddings=24,
        initializer_range=0.6,
    )
    BertModel(config).save_pretrained(folder)
    marks = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(),
        **{f"{name}_token": mark for name, mark in marks.items()},
    ).save_pretrained(folder)
