"""Weight averaging: its formula, and its use in a run."""

import json
from math import comb

import numpy as np
import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.training import tiny_table, write_texts
from safetensors.torch import load_file
from torch import nn

import perron
from perron.errors import SettingsError
from perron.training import read_recipe, train
from perron.training.metrics import evaluate
from perron.training.prepare import prepare
from perron.training.state import WeightAverage


def step_weights(steps: int, decay: float) -> np.ndarray:
    """Return the weight of each step in the average, by setting step s to e_s."""
    model = nn.Linear(steps, 1, bias=False, dtype=torch.float64)
    average = WeightAverage(model, decay)
    for step in range(steps):
        with torch.no_grad():
            model.weight.copy_(torch.eye(steps)[step])
        average.update(step + 1)
    return average.tensors["weight"][0].numpy()


@pytest.mark.parametrize("steps", [1, 2, 12, 300])
def test_early_on_the_weight_of_a_step_grows_as_its_eighth_power(steps):
    # The recursion with s_t = 9 / (t + 8) unrolls to normalized binomials.
    expected = [comb(s + 7, 8) / comb(steps + 8, 9) for s in range(1, steps + 1)]
    np.testing.assert_allclose(step_weights(steps, 0.9999), expected, rtol=1e-12)


@pytest.mark.parametrize("decay", [0.5, 0.75, 0.9])
def test_in_the_long_run_the_weights_decay_exponentially(decay):
    weights = step_weights(400, decay)
    np.testing.assert_allclose(weights.sum(), 1)
    latest = (1 - decay) * decay ** np.arange(50)
    np.testing.assert_allclose(weights[::-1][:50], latest, rtol=1e-10)


def test_the_initial_weights_are_forgotten_after_one_step():
    model = nn.Linear(3, 2)
    average = WeightAverage(model, 0.999)
    with torch.no_grad():
        model.weight.mul_(1e-3)  # a remainder would be visible in float32
    average.update(1)
    assert torch.equal(average.tensors["weight"], model.weight)


def model_and_average() -> tuple[nn.Sequential, WeightAverage]:
    """Return a model with a frozen weight and buffers, and a different average."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model[2].bias.requires_grad_(False)
    average = WeightAverage(model, 0.9)
    average.update(1)
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(3).add_(1)
    model(torch.randn(5, 2, generator=torch.Generator().manual_seed(0)))
    average.update(2)
    return model, average


def copies(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_in_model_swaps_only_the_trained_weights():
    model, average = model_and_average()
    own = copies(model)
    averages = {name: value.clone() for name, value in average.tensors.items()}
    with average.in_model():
        inside = copies(model)
    changed = {name for name in own if not torch.equal(own[name], inside[name])}
    assert changed == {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight"}
    assert changed == averages.keys()
    for name in changed:
        assert torch.equal(inside[name], averages[name])
        assert torch.equal(average.tensors[name], averages[name])
    for name, value in model.state_dict().items():
        assert torch.equal(value, own[name])


def test_in_model_restores_the_weights_after_an_error():
    model, average = model_and_average()
    own = copies(model)
    with pytest.raises(OSError, match="disk"), average.in_model():
        raise OSError("disk full")
    assert all(torch.equal(value, own[n]) for n, value in model.state_dict().items())


def recipe(folder, *overrides):
    table = tiny_table(write_texts(folder / "texts.csv"))
    # A constant batch size, so that dev metrics do not affect training.
    table["training"] |= {"min_batch_size": 8, "checkpoint_seconds": 1000.0}
    return read_recipe(table, overrides)


def records(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Train without and with averaging; return the weights after each averaged step."""
    folder = tmp_path_factory.mktemp("averaged")
    seen: list[dict[str, np.ndarray]] = []

    def update(average, step, own=WeightAverage.update):
        weights = average._weights.items()
        seen.append({name: w.detach().double().numpy().copy() for name, w in weights})
        own(average, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PERRON_CACHE", str(folder / "cache"))
        patch.setattr(WeightAverage, "update", update)
        train(recipe(folder), folder / "plain")
        assert not seen
        train(recipe(folder, "training.ema_decay=0.8"), folder / "averaged")
    return folder, seen


def test_the_saved_model_is_the_average_up_to_the_best_epoch(runs):
    folder, seen = runs
    epochs = records(folder / "averaged")
    best = [record for record in epochs if record["is_best"]][-1]
    steps = best["step"]
    newest = [max(0.2, 9 / (step + 8)) for step in range(1, steps + 1)]
    saved = load_file(folder / "averaged" / "model.safetensors")
    assert saved.keys() == seen[0].keys()
    for name, value in saved.items():
        expected = 0.0
        for s, weights in zip(newest, seen, strict=False):
            expected = (1 - s) * expected + s * weights[name]
        np.testing.assert_allclose(value.numpy(), expected, rtol=1e-4, atol=1e-6)
    head = "head.layers.1.weight"
    assert np.abs(saved[head].numpy() - seen[steps - 1][head]).max() > 1e-3


def test_training_continues_from_the_weights_that_are_not_averaged(runs):
    folder, seen = runs
    plain, averaged = records(folder / "plain"), records(folder / "averaged")
    assert len(plain) == len(averaged) == 4
    assert len(seen) == averaged[-1]["step"]
    for one, other in zip(plain, averaged, strict=True):
        assert one["train_log_loss"] == other["train_log_loss"]
        assert one["dev_log_loss"] != other["dev_log_loss"]


def test_dev_and_test_metrics_are_those_of_the_saved_model(runs, tmp_path):
    folder, _ = runs
    result = json.loads((folder / "averaged" / "result.json").read_text())
    prepared = prepare(recipe(tmp_path))
    model = perron.load(folder / "averaged").model
    dev, test = (evaluate(model, part) for part in (prepared.dev, prepared.test))
    record = records(folder / "averaged")[result["best_epoch"]]
    for name, value in dev.metrics.items():
        assert value == pytest.approx(record[f"dev_{name}"], rel=1e-6)
    assert dev.metrics == pytest.approx(result["dev"], rel=1e-6)
    assert test.metrics == pytest.approx(result["test"], rel=1e-6)


@pytest.mark.parametrize("value", ["0", "1", "1.5"])
def test_an_invalid_decay_is_an_error(tmp_path, value):
    with pytest.raises(SettingsError, match=mentions("training.ema_decay", value)):
        recipe(tmp_path, f"training.ema_decay={value}")
