import pytest

from papers.gong2019.paper import ACCURACIES, DATASETS
from papers.gong2019.workspace import STUDIES, study_file
from perron.experiments import read_study
from perron.experiments.study import Trial

PAPER = sorted(STUDIES.glob("*.toml"))
BEYOND = sorted((STUDIES / "beyond").glob("*.toml"))


@pytest.mark.parametrize("path", [*PAPER, *BEYOND], ids=lambda path: path.stem)
def test_every_run_has_valid_settings(path):
    study = read_study(str(path))
    for variant in study.variants:
        for point in range(len(study.grid)):
            assert Trial(study, variant, point, 4).recipe().training.seed == 4


@pytest.mark.parametrize("path", PAPER, ids=lambda path: path.stem)
def test_the_variants_match_the_rows_of_the_paper(path):
    rows = set(read_study(str(path)).variants)
    if "phrases" in path.stem:
        assert rows < set(ACCURACIES)
    else:
        assert rows == set(ACCURACIES)


def test_every_dataset_of_the_paper_has_a_study():
    assert set(DATASETS) <= {path.stem for path in PAPER}


def test_encoder_settings_do_not_apply_to_variants_with_another_encoder():
    study = read_study(study_file("sst2"), ["model.encoder.hidden_dim=7"])
    assert Trial(study, "max", 0, 0).recipe().model.encoder.hidden_dim == 7
    assert Trial(study, "CNN-non-static", 0, 0).recipe().model.encoder.name == "cnn"
