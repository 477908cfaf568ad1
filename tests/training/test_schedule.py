import pytest
from perron_tests.errors import mentions
from perron_tests.training import tiny_table, write_texts

from perron.training import read_recipe, train
from perron.training.callbacks import read_metrics
from perron.training.recipe import TrainingSettings
from perron.training.state import TrainState, learning_rate

SETTINGS = TrainingSettings(
    learning_rate=1e-3,
    learning_rate_decay=0.5,
    learning_rate_decay_steps=10,
    min_learning_rate=1e-4,
    batch_size=128,
    min_batch_size=30,
    max_epochs=9,
    patience=3,
)


def rate(step: int = 0, epochs: float = 0.0, batches: int = 100, **settings) -> float:
    """Return the learning rate after a number of epochs, whose last may be partial."""
    position = round((epochs % 1) * batches)
    state = TrainState(128, epoch=int(epochs), position=position, step=step)
    return learning_rate(state, batches, SETTINGS.model_copy(update=settings))


def test_the_learning_rate_decays_in_steps_to_its_minimum():
    rates = [rate(step) for step in (0, 9, 10, 19, 20, 30, 31, 1000)]
    assert rates == [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4, 1.25e-4, 1.25e-4, 1e-4]


def test_a_minimum_above_the_learning_rate_does_not_raise_it():
    assert rate(min_learning_rate=1.0) == 1e-3


@pytest.mark.parametrize(
    ("name", "halfway", "three_quarters"),
    [("linear", 5e-4, 2.5e-4), ("cosine", 5e-4, 1.464e-4), ("constant", 1e-3, 1e-3)],
)
def test_a_relative_schedule_depends_on_the_fraction_of_planned_epochs(
    name, halfway, three_quarters
):
    schedule = {"lr_scheduler_type": name, "max_epochs": 8}
    for batches in (4, 1000):
        rates = [
            rate(step, epochs, batches, **schedule)
            for step, epochs in ((0, 0), (17, 4), (10**6, 6))
        ]
        assert rates == pytest.approx([1e-3, halfway, three_quarters], rel=1e-3)
    assert rate(0, 2.5, 4, **schedule) == rate(9, 2.5, 8, **schedule)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_relative_schedule_ends_at_the_minimum(name):
    assert rate(0, 8.99, lr_scheduler_type=name) == SETTINGS.min_learning_rate


@pytest.mark.parametrize("name", ["staircase", "linear", "cosine", "constant"])
def test_the_learning_rate_rises_during_warmup(name):
    schedule = {
        "lr_scheduler_type": name,
        "max_epochs": 10,
        "warmup_ratio": 0.2,
        "min_learning_rate": 0.0,
    }
    rates = [rate(0, epochs, **schedule) for epochs in (0, 0.5, 1, 1.5, 2)]
    assert rates == pytest.approx([0, 2.5e-4, 5e-4, 7.5e-4, 1e-3])
    middle = {"staircase": 5e-4, "constant": 1e-3}.get(name, 5e-4)
    assert rate(10, 6, **schedule) == pytest.approx(middle)


def test_a_run_follows_a_relative_schedule_as_the_batch_size_shrinks(tmp_path):
    table = tiny_table(write_texts(tmp_path / "texts.csv"))
    table["training"] |= {
        "lr_scheduler_type": "linear",
        "min_learning_rate": 0.0,
        "learning_rate": 1e-9,  # nothing improves, so the batch size is halved
        "batch_size": 32,
        "min_batch_size": 4,
        "max_epochs": 4,
        "patience": 9,
    }
    train(read_recipe(table), tmp_path / "run")
    records = read_metrics(tmp_path / "run")
    sizes = [record["batch_size"] for record in records]
    assert sizes[0] == 32
    assert sizes[-1] < 32
    for record in records:
        steps = record["step"] - sum(
            other["step"] for other in records if other["epoch"] == record["epoch"] - 1
        )
        progress = (record["epoch"] + (steps - 1) / steps) / 4
        assert record["learning_rate"] == pytest.approx(1e-9 * (1 - progress))


def run_epochs(accuracies: list[float]) -> tuple[TrainState, list[int], list[bool]]:
    state, sizes, bests = TrainState(128), [], []
    for accuracy in accuracies:
        sizes.append(state.batch_size)
        state.add_batch(loss=2.0, correct=1.0, examples=4, seconds=0.5)
        bests.append(state.end_epoch({"accuracy": accuracy, "log_loss": 1.0}, SETTINGS))
    return state, sizes, bests


def test_the_batch_size_is_halved_after_an_epoch_without_improvement():
    state, sizes, bests = run_epochs([0.5, 0.5, 0.6, 0.4, 0.5])
    assert sizes == [128, 128, 64, 64, 32]
    assert state.batch_size == 30
    assert bests == [True, False, True, False, False]
    assert (state.best_epoch, state.best_score) == (2, 0.6)


def test_a_smaller_loss_breaks_ties_but_does_not_reset_patience():
    state = TrainState(128)
    pairs = [(0.5, 1.0), (0.5, 0.8), (0.5, 0.9), (0.4, 0.1)]
    bests = [
        state.end_epoch({"accuracy": accuracy, "log_loss": loss}, SETTINGS)
        for accuracy, loss in pairs
    ]
    assert bests == [True, True, False, False]
    assert (state.best_epoch, state.best_loss) == (1, 0.8)
    assert (state.epochs_since_best, state.finished) == (3, True)


@pytest.mark.parametrize(
    ("metric", "values", "bests"),
    [
        ("macro_f1", [0.5, 0.6, 0.4], [True, True, False]),
        ("log_loss", [0.5, 0.6, 0.4], [True, False, True]),
        ("macro_f1", [float("nan"), 0.2, float("nan")], [True, True, False]),
    ],
)
def test_another_metric_can_select_the_best_epoch(metric, values, bests):
    settings = SETTINGS.model_copy(update={"metric_for_best_model": metric})
    state = TrainState(128)
    metrics = [{"accuracy": 0.5, "log_loss": 1.0, metric: value} for value in values]
    assert [state.end_epoch(each, settings) for each in metrics] == bests


def test_the_metric_for_the_best_model_must_exist():
    with pytest.raises(ValueError, match=mentions("metric_for_best_model", "bleu")):
        TrainingSettings(metric_for_best_model="bleu")


def test_without_dev_data_all_epochs_run_and_the_last_one_is_kept():
    state = TrainState(128)
    epochs = 0
    while not state.finished:
        assert state.end_epoch(None, SETTINGS)
        epochs += 1
    assert epochs == SETTINGS.max_epochs > SETTINGS.patience
    assert state.best_epoch == SETTINGS.max_epochs - 1
    assert state.batch_size == 128


@pytest.mark.parametrize(
    ("accuracies", "finished"),
    [
        ([0.5, 0.4, 0.4], False),
        ([0.5, 0.4, 0.4, 0.5], True),  # patience
        ([0.5, 0.4, 0.4, 0.6], False),
        ([0.1 * epoch for epoch in range(8)], False),
        ([0.1 * epoch for epoch in range(9)], True),  # max_epochs
    ],
)
def test_training_stops_after_patience_or_the_last_epoch(accuracies, finished):
    assert run_epochs(accuracies)[0].finished is finished


def test_sums_start_at_zero_in_each_epoch_and_steps_do_not():
    state, _, _ = run_epochs([0.5, 0.6])
    assert (state.step, state.epoch, state.position) == (2, 2, 0)
    assert (state.loss, state.correct, state.examples, state.seconds) == (0,) * 4


def test_the_state_survives_a_round_trip():
    state, _, _ = run_epochs([0.5, 0.4])
    assert TrainState(**state.to_dict()) == state
