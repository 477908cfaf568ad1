"""Write SST-2 with two random training words after each word.

A pooling method that knows which words belong together should suffer less from this.
Words are sampled in proportion to their frequency in the training texts. The output is
the same in every run.

    PERRON_DATA=FOLDER python -m papers.gong2019.make_noise

writes runs/noisy/train.txt, dev.txt and test.txt for the recipe recipes/noisy.toml.
"""

from pathlib import Path

import numpy as np
from datasets import Dataset

from perron.files import atomic_write, make_folder
from perron.text.datasets import load_data
from perron.training import read_recipe, recipe_table

OUT = Path("runs/noisy")
NOISE_WORDS = 2  # after each word
SEED = 0


def main() -> None:
    """Write the three files."""
    splits = load_data(read_recipe(recipe_table("sst2")).data)
    words = [word for text in splits.train["text"] for word in text.split()]
    rng = np.random.default_rng(SEED)
    make_folder(OUT)
    for part in ("train", "dev", "test"):
        rows: Dataset = getattr(splits, part)
        lines = [
            f"{splits.labels[label]} {add_noise(text, words, rng)}\n"
            for text, label in zip(rows["text"], rows["label"], strict=True)
        ]
        atomic_write(OUT / f"{part}.txt", "".join(lines).encode())
        print(f"{OUT / part}.txt: {len(lines):,} texts")


def add_noise(text: str, noise: list[str], rng: np.random.Generator) -> str:
    """Return the text with random noise words after each word."""
    words = text.split()
    indices = rng.integers(0, len(noise), (len(words), NOISE_WORDS))
    return " ".join(
        token
        for word, row in zip(words, indices, strict=True)
        for token in (word, *(noise[index] for index in row))
    )


if __name__ == "__main__":
    main()
