import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from perron_tests.errors import mentions

import perron
from perron.errors import DataError, PerronError, SettingsError
from perron.experiments import run_study
from perron.experiments.records import (
    RECORDS,
    best_point,
    find_records,
    finished_records,
    missing_trials,
    read_records,
    source_version,
)
from perron.experiments.runner import run_trial
from perron.experiments.study import Trial, Variant
from perron.files import FolderLockedError, lock_folder
from perron.training.run import read_predictions, read_result


@pytest.fixture(scope="module")
def done(study_file, tmp_path_factory):
    from perron.experiments import read_study

    folder = tmp_path_factory.mktemp("runs")
    study = read_study(str(study_file))
    seen = []

    def on_trial(trial, done, total):
        seen.append((trial.variant, trial.point, trial.seed, done, total))
        return ()

    records = run_study(study, folder, on_trial=on_trial)
    return study, folder, records, seen


def test_all_grid_points_are_run_and_the_best_one_gets_the_seeds(done):
    study, _, records, seen = done
    for name, seeds in (("mean, plain", 2), ("centrality", 3)):
        tuning = [r for r in records if r.variant == name and r.seed == 0]
        assert [r.point for r in tuning] == [0, 1]
        best = int(np.argmax([r.dev["accuracy"] for r in tuning]))
        others = [r for r in records if r.variant == name and r.seed > 0]
        assert [r.seed for r in others] == list(range(1, seeds))
        assert {r.point for r in others} == {best}
    assert len(records) == len(seen) == 7
    assert [done for *_, done, _ in seen] == list(range(7))
    assert {total for *_, total in seen} == {study.num_runs} == {7}


def test_a_record_matches_its_run(done):
    _, folder, records, _ = done
    for record in records:
        (run_folder,) = (
            path.parent
            for path in folder.glob("*/record.json")
            if json.loads(path.read_text())["command"] == record.command
        )
        result = read_result(run_folder)
        predicted, expected = read_predictions(run_folder)
        assert record.correct_mask().tolist() == (predicted == expected).tolist()
        assert record.test["accuracy"] == pytest.approx(record.correct_mask().mean())
        assert (record.dev, record.test) == (result.dev, result.test)
        assert record.seed == result.seed
        assert record.commit == source_version()
        assert result.fingerprint.startswith(record.data)
        assert len(record.graphs) == (record.variant == "centrality")
        assert record.parameters > 0


def test_finished_runs_are_not_repeated(done):
    study, folder, records, _ = done

    def fail(*_):
        raise AssertionError("a finished run was repeated")

    assert run_study(study, folder, on_trial=fail) == records


def test_running_fewer_seeds_keeps_all_records(done, tmp_path):
    study, folder, records, _ = done
    (tmp_path / RECORDS).write_bytes((folder / RECORDS).read_bytes())
    variants = {name: Variant(set=v.set, seeds=1) for name, v in study.variants.items()}
    quick = study.model_copy(update={"variants": variants})
    assert len(run_study(quick, tmp_path)) == 4
    assert finished_records(study, tmp_path) == records
    other = study.model_copy(update={"set": ("training.max_grad_norm=3",)})
    assert finished_records(other, tmp_path) == []


def test_records_replace_runs_whose_folders_were_deleted(done, tmp_path):
    study, folder, records, _ = done
    (tmp_path / RECORDS).write_bytes((folder / RECORDS).read_bytes())
    assert run_study(study, tmp_path) == records
    assert not list(tmp_path.glob("*/"))


def test_the_command_of_a_record_reproduces_its_metrics(done, tmp_path):
    *_, records, _ = done
    record = records[-1]
    command = shlex.split(record.command)
    subprocess.run(
        [sys.executable, "-m", *command, "--out", tmp_path / "again", "--quiet"],
        check=True,
        env=None,
    )
    result = read_result(tmp_path / "again")
    assert (result.dev, result.test) == (record.dev, record.test)
    # Another process may sum in another order, so graphs agree only up to rounding.
    (again,), (first,) = result.graphs, record.graphs
    assert again.pop("level") == first["level"] == "words"
    assert again == pytest.approx({key: first[key] for key in again}, rel=1e-3)


def test_a_run_claimed_by_another_process_is_skipped(study, tmp_path):
    trial = Trial(study, "centrality", 0, 0)
    with lock_folder(tmp_path, trial.lock_name), pytest.raises(FolderLockedError):
        run_trial(trial, tmp_path)
    assert run_trial(trial, tmp_path) == run_trial(trial, tmp_path)


def test_a_folder_with_another_run_is_an_error(study, tmp_path):
    trial = Trial(study, "mean, plain", 0, 0)
    run_trial(trial, tmp_path)
    other = replace(
        trial, study=study.model_copy(update={"set": ("training.max_grad_norm=3",)})
    )
    with pytest.raises(PerronError, match=mentions(trial.command, "--out")):
        run_trial(other, tmp_path)


def test_invalid_settings_are_reported_before_the_first_run(study, tmp_path):
    variants = {**study.variants, "last": Variant(set=("model.aggregator=summ",))}
    invalid = study.model_copy(update={"variants": variants})
    with pytest.raises(SettingsError, match=mentions("'summ'")):
        run_study(invalid, tmp_path)
    assert not list(tmp_path.iterdir())


def test_variants_with_the_same_folder_are_an_error(study, tmp_path):
    variants = {"x 4": Variant(), "x-4": Variant()}
    invalid = study.model_copy(update={"variants": variants})
    with pytest.raises(SettingsError, match=mentions("'x 4'", "'x-4'")):
        run_study(invalid, tmp_path)


def test_a_run_is_identified_by_its_command(done, tmp_path):
    study, folder, records, _ = done
    (tmp_path / RECORDS).write_bytes((folder / RECORDS).read_bytes())
    changed = study.model_copy(
        update={
            "grid": study.grid[::-1],
            "variants": {"new name": study.variants["centrality"]},
        }
    )
    renamed = finished_records(changed, tmp_path)
    points = {r.command: r.point for r in records if r.variant == "centrality"}
    assert {r.variant for r in renamed} == {"new name"}
    assert len({r.command for r in renamed if r.seed == 0}) == 2
    assert all(r.point == 1 - points[r.command] for r in renamed)
    shortened = changed.model_copy(update={"grid": study.grid[1:]})
    assert {r.point for r in finished_records(shortened, tmp_path)} == {0}


def test_the_commit_is_that_of_perron(tmp_path, monkeypatch):
    """Perron may be installed inside another repository."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    commit = ["commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(["git", "-C", tmp_path, *identity, *commit], check=True)
    (tmp_path / "__init__.py").touch()
    monkeypatch.setattr(perron, "__file__", str(tmp_path / "__init__.py"))
    assert source_version.__wrapped__() == f"version {perron.__version__}"
    subprocess.run(["git", "-C", tmp_path, "add", "."], check=True)
    subprocess.run(["git", "-C", tmp_path, *identity, *commit], check=True)
    assert len(source_version.__wrapped__()) == 12


def test_changed_data_files_are_an_error(done, tmp_path):
    study, folder, records, _ = done
    (tmp_path / RECORDS).write_bytes((folder / RECORDS).read_bytes())
    data = Path(Trial(study, "centrality", 0, 0).recipe().data.train)
    assert {record.data_bytes for record in records} == {data.stat().st_size}
    before = data.read_bytes()
    try:
        data.write_bytes(before + before[-20:])
        sizes = (f"{len(before):,}", f"{len(before) + 20:,}", "--out")
        with pytest.raises(PerronError, match=mentions(*sizes)):
            run_study(study, tmp_path)
        trial = Trial(study, "centrality", 0, 0)
        with pytest.raises(PerronError, match=mentions(*sizes)):
            run_trial(trial, folder)
        data.unlink()
        assert run_study(study, tmp_path) == records  # there is nothing to compare
    finally:
        data.write_bytes(before)


def test_no_grid_point_is_chosen_before_all_have_run(done, tmp_path):
    study, _, records, _ = done
    some = {r.command: r for r in records if r.point == 0}
    assert best_point(study, "centrality", some) is None
    assert {t.point for t in missing_trials(study, some)} == {1}
    assert find_records(study, tmp_path) == {}


def test_an_invalid_line_of_records_is_reported(tmp_path):
    path = tmp_path / RECORDS
    path.write_text('{"command": "x"}\n')
    with pytest.raises(DataError, match=mentions(path, 1)):
        read_records(path)
    path.write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=mentions(path, 1)):
        read_records(path)
