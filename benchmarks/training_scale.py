"""What does a step of the largest recipe compute, and what must processes exchange?

The model of the recipe yelp2014 with the paper's vocabulary, 49 600 words of width 300,
on documents of the paper's mean length: 10 sentences of 20 words. Measured with one
thread: documents a second of a step of training at several batch sizes, the bytes of a
gradient (what processes exchange at each step) and of a document's ids. docs/scale.md
calculates from these.

    python benchmarks/training_scale.py [--json FILE] [--threads 1] [--budget 60]
                                        [--quick]
"""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from perron.models import Classifier, ModelConfig, build_model
from perron.training import read_recipe, recipe_table
from perron.training.loop import make_optimiser
from perron.training.recipe import TrainingSettings
from timing import Report, interleaved_medians

VOCABULARY, SENTENCES, WORDS, CLASSES = 49_600, 10, 20, 5
BATCHES = (1, 8, 64)


def model_of_recipe() -> tuple[Classifier, TrainingSettings]:
    """Return the model of the recipe with random weights, and its training."""
    recipe = read_recipe(recipe_table("yelp2014"))
    config = ModelConfig(
        settings=recipe.model,
        vocabulary=VOCABULARY,
        labels=tuple(str(stars + 1) for stars in range(CLASSES)),
        max_words=recipe.text.max_words,
        max_sentences=recipe.text.max_sentences,
    )
    torch.manual_seed(0)
    return build_model(config).train(), recipe.training


def step(
    model: Classifier, optimiser: torch.optim.Optimizer, documents: int
) -> Callable[[], None]:
    """Return a step of training on this many documents."""
    rows = documents * SENTENCES
    ids = torch.randint(VOCABULARY, (rows * WORDS,))
    inputs = {"lengths": [WORDS] * rows, "sentences": [SENTENCES] * documents}
    labels = torch.randint(CLASSES, (documents,))

    def run() -> None:
        F.cross_entropy(model(ids, **inputs).logits, labels).backward()
        optimiser.step()
        optimiser.zero_grad()

    return run


def main() -> None:
    """Measure and print."""
    report = Report(__doc__, budget=60, threads=1)
    model, settings = model_of_recipe()
    optimiser = make_optimiser(model, settings)
    batches = BATCHES[: 1 if report.quick else None]
    ways = {str(count): step(model, optimiser, count) for count in batches}
    seconds = interleaved_medians(ways, repeats=9, budget=report.budget)
    rows = [
        {
            "documents": int(count),
            "milliseconds": 1000 * t,
            "documents/s": int(count) / t,
        }
        for count, t in seconds.items()
    ]
    style = {"documents": "d", "milliseconds": ".0f", "documents/s": ".1f"}
    report.add("a step of training, recipe yelp2014", rows, style)
    weights = sum(weight.numel() for weight in model.parameters())
    report.finish(
        [
            f"{weights:,} weights: a gradient has {4 * weights / 1e6:.1f} MB",
            f"the ids of a document have {4 * SENTENCES * (WORDS + 1)} bytes",
        ]
    )


if __name__ == "__main__":
    main()
