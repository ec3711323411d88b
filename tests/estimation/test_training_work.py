"""Work of a job with a tuned batch: what its steps were worth, by step and after a return to a checkpoint."""

import pytest

from estimation.training_work import Reached, WorthByStep, worth_of_step

LIMITS = {"initial": 128, "max": 2048}


@pytest.mark.parametrize(
    ("limits", "noise_scale", "batch", "worth"),
    [
        (LIMITS, 50.0 * 128, 128, 1.0),
        (LIMITS, 50.0 * 128, 512, 51 / 13.5),
        (LIMITS, 0.0, 512, 1.0),
        (LIMITS, None, 512, 1.0),
        (LIMITS, 50.0 * 128, None, 1.0),
        ({}, 50.0 * 128, 512, 1.0),
    ],
)
def test_a_step_is_worth_its_gain_where_the_noise_is_known(
    limits: dict[str, int], noise_scale: float | None, batch: int | None, worth: float
) -> None:
    assert worth_of_step(limits, noise_scale, batch) == pytest.approx(worth)


@pytest.mark.parametrize(("step", "worth"), [(0, 0), (50, 50), (100, 100), (150, 200), (200, 300), (210, 320)])
def test_worth_is_interpolated_between_known_steps_and_goes_on_after_the_last(step: int, worth: float) -> None:
    assert WorthByStep([Reached(100, 100.0), Reached(200, 300.0)]).at(step, 2.0) == pytest.approx(worth)


def test_what_was_reached_before_a_return_to_an_earlier_step_is_forgotten() -> None:
    found = WorthByStep([Reached(100, 100.0), Reached(200, 500.0), Reached(150, 150.0), Reached(250, 250.0)])
    assert [found.at(step, 1.0) for step in (100, 200, 250)] == [100, 200, 250]
    assert WorthByStep([Reached(100, 100.0), Reached(0, 0.0)]).at(10, 3.0) == 30
