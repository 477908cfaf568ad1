"""Label a Hugging Face dataset with a trained model, in two processes.

    python examples/demo.py          # trains a model
    python examples/datasets_map.py

`TextMapper` holds settings but no model, so `datasets` can send it to its processes
and use its pickle to recognize a cached result.
"""

import sys
from collections import Counter
from pathlib import Path

from datasets import Dataset

from perron.integrations.corpora import TextMapper

MODEL = "runs/demo"
SENTENCES = [
    "a gorgeous, witty, seductive movie .",
    "what a waste of a good cast .",
    "it is not a bad film , and not a dull one .",
    "two hours that felt like four .",
]


def main() -> None:
    """Label the sentences, print some, and label them again from the cache."""
    if not Path(MODEL, "config.json").exists():
        sys.exit(f"error: {MODEL} contains no model. Run examples/demo.py first.")
    folder = Path("runs/sentences")
    Dataset.from_dict({"text": SENTENCES * 50}).save_to_disk(folder)
    sentences = Dataset.load_from_disk(folder)
    mapper = TextMapper(MODEL, threads=1)  # in each of the two processes
    labeled = sentences.map(mapper, batched=True, batch_size=64, num_proc=2)
    print(Counter(labeled["label"]))
    for row in labeled.select(range(len(SENTENCES))):
        probabilities = {
            label: round(probability, 2)
            for label, probability in row["probabilities"].items()
        }
        print(row["label"], probabilities, row["text"])

    again = sentences.map(
        TextMapper(MODEL, threads=1), batched=True, batch_size=64, num_proc=2
    )
    print("from the cache:", again.cache_files == labeled.cache_files)
    vectors = sentences.map(TextMapper(MODEL, "encode"), batched=True)
    print(vectors.features)


if __name__ == "__main__":
    main()
