"""Compare aggregators and baselines on real sentences; save the centrality model.

Uses film reviews (8530 sentences of Rotten Tomatoes) and a frozen pretrained encoder
(MiniLM), both from PyPI. Each sentence is encoded once, and the models are trained on
the cached states. Takes a few minutes on two cores; a second run reuses the trained
models and only shows them.

    python examples/demo.py [--out runs/demo] [--epochs N]
"""

import argparse
import shutil
from pathlib import Path

from rich.console import Console

import perron
from perron.cli.runs import EncodingBar, ThreadLimit, TrainingBar
from perron.cli.study import rich_table
from perron.errors import PerronError
from perron.experiments import compare
from perron.experiments.report import summarize
from perron.experiments.study import Trial
from perron.explain.views import html_page, shaded_words
from perron.files import atomic_write
from perron.training import read_recipe, recipe_table

AGGREGATORS = ["centrality", "self-attention", "max", "mean"]
SENTENCES = [
    "A gorgeous, witty, seductive movie.",
    "The plot is dull and the jokes are painfully unfunny.",
    "It's not a bad film, but it's too long and too slow.",
    "One of the most moving and honest performances of the year.",
]


def main() -> None:
    """Train, compare, explain and save."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/demo"))
    parser.add_argument("--epochs", type=int, help="maximum number of epochs")
    options = parser.parse_args()
    console = Console(highlight=False)
    overrides = [f"training.max_epochs={options.epochs}"] if options.epochs else []
    recipe = read_recipe(recipe_table("demo"), overrides)
    runs = options.out.with_name(f"{options.out.name}-runs")

    console.print(
        "Rotten Tomatoes, 8530 sentences, frozen MiniLM: four aggregators and two "
        "baselines, logistic regression on TF-IDF and on the mean of the states"
    )
    study, results = compare(
        recipe,
        AGGREGATORS,
        1,
        runs,
        title="Rotten Tomatoes",
        baselines=("tfidf", "mean"),
        on_trial=lambda trial, *_: [
            ThreadLimit(),
            TrainingBar(f"{trial.variant:>14}"),
        ],
        encoding_progress=EncodingBar(),
    )
    console.print(rich_table(study, summarize(study, results)))
    console.print(
        "(With one seed, differences of a point or two are noise. "
        "perron compare runs several seeds.)\n"
    )

    console.print("Word weights, in % of the sentence:\n")
    folders = [Trial(study, name, 0, 0).run_folder(runs) for name in AGGREGATORS[:2]]
    models = [perron.load(folder) for folder in folders]
    records = [[model.explain(sentence) for model in models] for sentence in SENTENCES]
    for record in (record for row in records for record in row):
        name = f"{record.model.aggregator:>14}"
        console.print(f"{name} [bold]{record.label:<8}[/] ", end="")
        console.print(shaded_words(record.words[0]))

    shutil.copytree(folders[0], options.out, dirs_exist_ok=True)
    graph_page = options.out / "graph.html"
    atomic_write(graph_page, html_page(records, "Word weights").encode())
    console.print(
        f"\nThe word graphs are in {graph_page}. Open it in a browser.\n"
        f"The centrality model is in {options.out}. Next, try:\n\n"
        f'  .venv/bin/perron predict {options.out} "what a waste of a good cast"\n'
        f'  .venv/bin/perron graph {options.out} "what a waste of a good cast"\n'
        f"  .venv/bin/perron serve {options.out}\n"
        f"  .venv/bin/perron evaluate {options.out}\n"
        "  .venv/bin/perron train --data your.csv --text column --label column\n"
    )


if __name__ == "__main__":
    try:
        main()
    except PerronError as error:
        raise SystemExit(f"error: {error}") from None
