import pytest
import tomli_w
from perron_tests.training import tiny_table, write_texts

from perron.experiments import Study, read_study


@pytest.fixture(scope="session")
def study_file(tmp_path_factory):
    """Write a study of two variants and two grid points that trains in seconds."""
    folder = tmp_path_factory.mktemp("study")
    table = tiny_table(write_texts(folder / "texts.csv", rows=100))
    table["training"]["max_epochs"] = 1
    (folder / "recipe.toml").write_text(tomli_w.dumps(table))
    study = {
        "title": "tiny",
        "recipe": str(folder / "recipe.toml"),
        "grid": [["training.learning_rate=0.02"], ["training.learning_rate=0.01"]],
        "seeds": 2,
        "variants": {
            "mean, plain": {"set": ["model.aggregator=mean"]},
            "centrality": {"set": ["model.aggregator=centrality"], "seeds": 3},
        },
    }
    path = folder / "study.toml"
    path.write_text(tomli_w.dumps(study))
    return path


@pytest.fixture
def study(study_file) -> Study:
    return read_study(str(study_file))
