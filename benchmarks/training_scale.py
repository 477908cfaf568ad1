"""What does a training step of the largest recipe compute and communicate?

The model is the one in the recipe yelp2014, with the paper's vocabulary, 49,600 words
of width 300. The documents have the paper's mean length, 10 sentences of 20 words. On
one thread, the benchmark measures the documents per second of a training step at
several batch sizes, the size of a gradient (which the processes exchange in each step)
and the size of a document's ids. docs/scale.md builds on these numbers.

    python benchmarks/training_scale.py [--json FILE] [--threads 1] [--budget 60]
                                        [--quick]
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from perron.models import Classifier, ModelConfig, build_model
from perron.training import read_recipe, recipe_table
from perron.training.loop import make_optimizer
from perron.training.recipe import TrainingSettings
from timing import Report, interleaved_medians

VOCABULARY, SENTENCES, WORDS, CLASSES = 49_600, 10, 20, 5
BATCHES = (1, 8, 64)


def make_model() -> tuple[Classifier, TrainingSettings]:
    """Return the recipe's model with random weights and its training settings."""
    recipe = read_recipe(recipe_table("yelp2014"))
    config = ModelConfig(
        settings=recipe.model,
        vocab_size=VOCABULARY,
        labels=tuple(str(stars + 1) for stars in range(CLASSES)),
        max_words=recipe.text.max_words,
        max_sentences=recipe.text.max_sentences,
    )
    torch.manual_seed(0)
    return build_model(config).train(), recipe.training


def make_step(
    model: Classifier, optimizer: torch.optim.Optimizer, documents: int
) -> Callable[[], None]:
    """Return a function that runs a training step on ``documents`` documents."""
    rows = documents * SENTENCES
    ids = torch.randint(VOCABULARY, (rows * WORDS,))
    inputs = {"lengths": [WORDS] * rows, "sentences": [SENTENCES] * documents}
    labels = torch.randint(CLASSES, (documents,))

    def step() -> None:
        F.cross_entropy(model(ids, **inputs).logits, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=60, threads=1)
    model, settings = make_model()
    optimizer = make_optimizer(model, settings)
    batches = BATCHES[: 1 if report.quick else None]
    calls = {str(count): make_step(model, optimizer, count) for count in batches}
    seconds = interleaved_medians(calls, repeats=9, budget=report.budget)
    rows = [
        {
            "documents": int(count),
            "milliseconds": 1000 * t,
            "documents/s": int(count) / t,
        }
        for count, t in seconds.items()
    ]
    columns = {"documents": "d", "milliseconds": ".0f", "documents/s": ".1f"}
    report.add("training step, recipe yelp2014", rows, columns)
    parameters = sum(p.numel() for p in model.parameters())
    report.finish(
        [
            f"{parameters:,} parameters; a gradient takes "
            f"{4 * parameters / 1e6:.1f} MB",
            f"the ids of a document take {4 * SENTENCES * (WORDS + 1)} bytes",
        ]
    )


if __name__ == "__main__":
    main()
