"""Write SST-2 with noise: behind each word two more, drawn from all training words.

A pooling that knows which words belong together should mind them less. The words are
drawn by how often they are in the training texts; the same are in every file that this
writes.

    PERRON_DATA=FOLDER python -m papers.gong2019.make_noise

writes runs/noisy/train.txt, dev.txt and test.txt, which recipes/noisy.toml is for.
"""

from pathlib import Path

import numpy as np
from datasets import Dataset

from perron.files import make_folder, write_whole
from perron.text.datasets import load_data
from perron.training import read_recipe, recipe_table

OUT = Path("runs/noisy")
NOISE = 2  # words behind each word
SEED = 0


def main() -> None:
    """Write the three files."""
    splits = load_data(read_recipe(recipe_table("sst2")).data)
    words = [word for text in splits.train["text"] for word in text.split()]
    chance = np.random.default_rng(SEED)
    make_folder(OUT)
    for part in ("train", "dev", "test"):
        rows: Dataset = getattr(splits, part)
        lines = [
            f"{splits.labels[label]} {noisy(text, words, chance)}\n"
            for text, label in zip(rows["text"], rows["label"], strict=True)
        ]
        write_whole(OUT / f"{part}.txt", "".join(lines).encode())
        print(f"{OUT / part}.txt: {len(lines):,} texts")


def noisy(text: str, words: list[str], chance: np.random.Generator) -> str:
    """Return the text with noise between its words."""
    found = text.split()
    drawn = chance.integers(0, len(words), (len(found), NOISE))
    return " ".join(
        part
        for word, places in zip(found, drawn, strict=True)
        for part in (word, *(words[place] for place in places))
    )


if __name__ == "__main__":
    main()
