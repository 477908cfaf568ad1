"""What was read, in a few lines, before training begins."""

from perron.cli.console import say
from perron.training.prepare import Prepared


def tell_prepared(prepared: Prepared) -> None:
    """Say what the data and the word vectors are like, and what was left out."""
    splits, recipe = prepared.splits, prepared.recipe
    sizes = [len(prepared.train), len(prepared.dev)]
    sizes.append(0 if prepared.test is None else len(prepared.test))
    say(
        f"{recipe.data.format}: {sizes[0]:,} / {sizes[1]:,} / {sizes[2]:,} texts "
        f"(train / dev / test), {len(splits.labels)} classes"
    )
    for path, count in splits.skipped.items():
        if count:
            say(f"{path}: left out {count} bad row{'s' if count > 1 else ''}")
    kind = "words" if prepared.model.config.pretrained is None else "pieces of words"
    say(f"vocabulary: {len(prepared.word_ids.tokenizer.words):,} {kind}")
    for name, coverage in prepared.coverage.items():
        say(f"{name}: has {coverage}")
        if skipped := prepared.skipped_vectors[name]:
            say(f"{name}: left out {skipped} bad rows")
    parts = recipe.model
    weights = sum(p.numel() for p in prepared.model.parameters() if p.requires_grad)
    say(
        f"model: {parts.kind}, {parts.encoder.name}, {parts.aggregator.name}; "
        f"{weights:,} weights to learn"
    )
