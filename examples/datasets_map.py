"""Label a Hugging Face dataset with a trained model, in two processes.

    python examples/demo.py          # trains a model
    python examples/datasets_map.py

`TextMapper` holds settings and no model, so `datasets` can send it to its processes and
knows by its pickle whether it has the result already.
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
    """Map, print, and map again from the cache."""
    if not Path(MODEL, "config.json").exists():
        sys.exit(f"no model in {MODEL}: examples/demo.py trains a model")
    saved = Path("runs/sentences")
    Dataset.from_dict({"text": SENTENCES * 50}).save_to_disk(saved)
    sentences = Dataset.load_from_disk(saved)
    mapper = TextMapper(MODEL, threads=1)  # in each of two processes
    labelled = sentences.map(mapper, batched=True, batch_size=64, num_proc=2)
    print(Counter(labelled["label"]))
    for row in labelled.select(range(len(SENTENCES))):
        shares = {name: round(share, 2) for name, share in row["probabilities"].items()}
        print(row["label"], shares, row["text"])

    again = sentences.map(
        TextMapper(MODEL, threads=1), batched=True, batch_size=64, num_proc=2
    )
    print("from the cache:", again.cache_files == labelled.cache_files)
    vectors = sentences.map(TextMapper(MODEL, "encode"), batched=True)
    print(vectors.features)


if __name__ == "__main__":
    main()
