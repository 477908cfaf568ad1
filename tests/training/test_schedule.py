import pytest

from perron.training.recipe import TrainingSettings
from perron.training.state import Standing, learning_rate

SETTINGS = TrainingSettings(
    learning_rate=1e-3,
    decay=0.5,
    decay_steps=10,
    learning_rate_floor=1e-4,
    batch_size=128,
    batch_size_low=30,
    max_epochs=9,
    patience=3,
)


def test_the_learning_rate_falls_in_a_stair_to_its_floor():
    rates = [learning_rate(step, SETTINGS) for step in (0, 9, 10, 19, 20, 30, 31, 1000)]
    assert rates == [1e-3, 1e-3, 5e-4, 5e-4, 2.5e-4, 1.25e-4, 1.25e-4, 1e-4]


def test_a_floor_above_the_learning_rate_does_not_raise_it():
    settings = SETTINGS.model_copy(update={"learning_rate_floor": 1.0})
    assert learning_rate(0, settings) == 1e-3


def run_epochs(accuracies: list[float]) -> tuple[Standing, list[int], list[bool]]:
    standing, sizes, bests = Standing(128), [], []
    for accuracy in accuracies:
        sizes.append(standing.batch_size)
        standing.count(loss=2.0, right=1, seen=4, seconds=0.5)
        bests.append(standing.end_epoch(accuracy, 1.0, SETTINGS))
    return standing, sizes, bests


def test_the_batch_size_is_halved_after_an_epoch_without_a_new_best():
    standing, sizes, bests = run_epochs([0.5, 0.5, 0.6, 0.4, 0.5])
    assert sizes == [128, 128, 64, 64, 32]
    assert standing.batch_size == 30
    assert bests == [True, False, True, False, False]
    assert (standing.best_epoch, standing.best_accuracy) == (2, 0.6)


def test_of_equal_accuracies_the_one_with_less_loss_is_kept_without_new_patience():
    standing = Standing(128)
    pairs = [(0.5, 1.0), (0.5, 0.8), (0.5, 0.9), (0.4, 0.1)]
    bests = [standing.end_epoch(*pair, SETTINGS) for pair in pairs]
    assert bests == [True, True, False, False]
    assert (standing.best_epoch, standing.best_loss) == (1, 0.8)
    assert (standing.without_best, standing.finished) == (3, True)


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
def test_it_stops_after_patience_or_the_last_epoch(accuracies, finished):
    assert run_epochs(accuracies)[0].finished is finished


def test_sums_begin_anew_with_an_epoch_and_steps_do_not():
    standing, _, _ = run_epochs([0.5, 0.6])
    assert (standing.step, standing.epoch, standing.position) == (2, 2, 0)
    assert (standing.loss, standing.right, standing.seen, standing.seconds) == (0,) * 4


def test_a_standing_survives_being_written_down():
    standing, _, _ = run_epochs([0.5, 0.4])
    assert Standing(**standing.to_dict()) == standing
