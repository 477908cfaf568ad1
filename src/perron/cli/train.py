"""``perron train`` and ``perron finish``."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perron.cli import keep_freed_memory, limit_threads
from perron.cli.console import (
    confusion_table,
    is_main_process,
    print_message,
    print_skipped,
    results,
)
from perron.cli.options import DataDir, Quiet, TrainOptions, with_options
from perron.errors import SettingsError

if TYPE_CHECKING:
    from perron.training import Recipe
    from perron.training.prepare import PreparedRun
    from perron.training.run import Result


def print_data_summary(prepared: "PreparedRun") -> None:
    """Print the sizes of data, vocabulary and model, and the word vector coverage."""
    splits, recipe = prepared.splits, prepared.recipe
    sizes = [len(prepared.train), len(prepared.dev)]
    sizes.append(0 if prepared.test is None else len(prepared.test))
    print_message(
        f"{recipe.data.format}: {sizes[0]:,} / {sizes[1]:,} / {sizes[2]:,} texts "
        f"(train / dev / test), {len(splits.labels)} classes"
    )
    for path, count in splits.skipped.items():
        print_skipped(count, path)
    unit = "words" if prepared.model.config.pretrained is None else "subwords"
    print_message(f"vocabulary: {len(prepared.processor.tokenizer.words):,} {unit}")
    for name, coverage in prepared.coverage.items():
        print_message(f"{name}: {coverage}")
        print_skipped(prepared.skipped_vectors[name], name)
    model = recipe.model
    parameters = sum(p.numel() for p in prepared.model.parameters() if p.requires_grad)
    print_message(
        f"model: {model.kind}, {model.encoder.name}, {model.aggregator.name}; "
        f"{parameters:,} trainable parameters"
    )


def _start(quiet: bool, prepared: "PreparedRun") -> None:
    """Choose the number of threads and print the size of data and model."""
    message = limit_threads(prepared.model, trains=True)
    if not quiet:
        print_data_summary(prepared)
        if message:
            print_message(message)


@with_options(TrainOptions)
def train(
    options: TrainOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run. Defaults to runs/NAME, where NAME is the name of "
            "the recipe or the data file."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the interrupted run in --out.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Random seed. Defaults to the seed in the recipe."),
    ] = None,
    log_with: Annotated[
        list[str] | None,
        typer.Option(
            help="Experiment tracker to log each epoch to: tensorboard, wandb, or "
            "another tracker supported by accelerate. Can be repeated."
        ),
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Short for --log-with tensorboard.")
    ] = False,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="After training with a frozen encoder, fine-tune the encoder in a "
            "second run, in a folder that ends in -tuned. Takes minutes on a CPU.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train a model and save its best epoch in a folder.

    From the end of the first epoch on, the folder holds the best model so far, which
    you can already use with predict, evaluate and graph. An interrupted run can be
    resumed with --resume, or ended with `perron finish`.

    Examples:

        perron train demo

        perron train sst2 --data-dir ~/data --vectors glove.840B.300d.zip

        perron train --data reviews.csv --text review --label stars

        perron train --data pairs.tsv --text first --text-pair second --label relation

        perron train --data reviews.csv --encoder hf:distilbert/distilbert-base-cased

        perron train --data reviews.csv --tune

        perron train --resume --out runs/reviews
    """
    from perron.cli.runs import resolve_recipe, tuning_recipe
    from perron.training.recipe import read_settings

    if resume and options.recipe is None and options.data is None:
        if out is None:
            raise SettingsError(
                "--resume requires the folder of the run. Add --out FOLDER."
            )
        if options != TrainOptions() or seed is not None:
            raise SettingsError(
                "--resume uses the settings of the run. Remove all other options."
            )
        recipe = read_settings(out)
    else:
        recipe = resolve_recipe(options, seed)
    folder = out or Path("runs") / options.name
    trackers = [*(log_with or []), *(["tensorboard"] if tensorboard else [])]
    log_with = list(dict.fromkeys(trackers))
    if tune:
        tuning = tuning_recipe(recipe, folder)  # before training, to report errors
    _train(recipe, folder, resume, log_with, quiet)
    if tune:
        folder = folder.with_name(f"{folder.name}-tuned")
        if not quiet and is_main_process():
            print_message("Fine-tuning the encoder, starting from this model.")
        _train(tuning, folder, resume, log_with, quiet)


def _train(
    recipe: "Recipe", folder: Path, resume: bool, log_with: list[str], quiet: bool
) -> None:
    """Train in a folder and print the result; exit if the run is interrupted."""
    from perron.cli.runs import EncodingBar, ReadingBar, TrainingBar
    from perron.training.run import train as run_training
    from perron.training.state import TrainingInterrupted

    reading, encoding = ReadingBar(), EncodingBar()
    limit_threads()  # for encoding
    keep_freed_memory()
    try:
        result = run_training(
            recipe,
            folder,
            resume=resume,
            callbacks=() if quiet else [TrainingBar()],
            log_with=log_with,
            on_data_ready=partial(_start, quiet),
            vector_progress=None if quiet else reading,
            encoding_progress=None if quiet else encoding,
        )
    except TrainingInterrupted as stopped:
        print_message(
            f"{stopped}. To resume: perron train --resume --out {folder}\n"
            f"To end the run with its best epoch so far: perron finish {folder}"
        )
        raise typer.Exit(128 + stopped.signal_number) from stopped
    finally:
        reading.stop()
        encoding.stop()
    if is_main_process():
        _print_result(result, folder, recipe.model.kind == "pair", quiet)


def finish(
    run: Annotated[Path, typer.Argument(help="Folder of an interrupted run.")],
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Finish an interrupted run with its best epoch so far.

    Evaluates that epoch, writes the result, the model card and the plots, and deletes
    the checkpoint. The run cannot be resumed afterward.

    Examples:

        perron finish runs/reviews
    """
    from perron.cli.runs import EncodingBar, ReadingBar
    from perron.training.recipe import read_settings
    from perron.training.run import finish as finish_run

    reading, encoding = ReadingBar(), EncodingBar()
    limit_threads()  # for encoding
    try:
        result = finish_run(
            run,
            root=data_dir,
            on_data_ready=partial(_start, quiet),
            vector_progress=None if quiet else reading,
            encoding_progress=None if quiet else encoding,
        )
    finally:
        reading.stop()
        encoding.stop()
    if is_main_process():
        is_pair = read_settings(run).model.kind == "pair"
        _print_result(result, run, is_pair, quiet)


def _print_result(result: "Result", folder: Path, is_pair: bool, quiet: bool) -> None:
    from perron.training.metrics import format_metrics

    results.print(
        f"best epoch {result.best_epoch + 1} of {result.epochs}\n"
        f"dev:  {format_metrics(result.dev)}"
    )
    if result.test is not None:
        results.print(f"test: {format_metrics(result.test)}")
    if not quiet and result.confusion:  # empty in runs of version 1
        results.print(confusion_table(_labels(folder), result.confusion))
    if result.dev["accuracy"] <= result.majority_share:
        print_message(
            "The dev accuracy is no better than always predicting the most frequent "
            f"class ({100 * result.majority_share:.2f} %), so the model has not "
            "learned anything. Try more texts, --set training.patience=20, "
            "--set training.batch_size=8 --set training.min_batch_size=8, or another "
            "--set training.learning_rate."
        )
    if not quiet:
        texts = '"..." "..."' if is_pair else '"..."'
        print_message(f"Saved in {folder}. Try it: perron predict {folder} {texts}")


def _labels(folder: Path) -> tuple[str, ...]:
    from perron.models.config import folder_files, read_config

    return read_config(folder_files(folder)).labels
