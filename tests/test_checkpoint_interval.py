"""When a checkpoint is due: the words for it, and the interval that costs the least time."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdist.checkpoint.interval import (
    Auto,
    EveryEpochs,
    EverySeconds,
    EverySteps,
    read_interval,
    read_seconds,
    young_daly,
)
from tfdist.errors import ConfigError

some = settings(max_examples=200, deadline=None, derandomize=True)


def total_time(interval, save, mtbf):
    """Daly 2006: expected seconds for a second of training, without the factor that no interval changes."""
    return mtbf * math.expm1((interval + save) / mtbf) / interval


@some
@given(st.floats(0.01, 1e5), st.floats(1e-6, 0.5))
def test_young_daly_is_within_a_thousandth_of_the_optimum(mtbf, part):
    save = part * mtbf
    chosen = total_time(young_daly(save, mtbf), save, mtbf)
    best = min(total_time(young_daly(save, mtbf) * 1.02**i, save, mtbf) for i in range(-100, 101))
    assert chosen <= 1.001 * best


@pytest.mark.parametrize(("save", "mtbf"), [(2.0, 1.0), (50.0, 1.0)])
def test_a_save_longer_than_twice_the_time_between_failures(save, mtbf):
    assert young_daly(save, mtbf) == mtbf


def test_young_daly_tends_to_young_for_cheap_saves():
    assert young_daly(1.0, 1e8) == pytest.approx(math.sqrt(2e8), rel=1e-4)


@some
@given(st.integers(1, 50), st.integers(0, 200))
def test_next_step_is_the_next_at_which_steps_are_due(every, step):
    interval = EverySteps(every)
    due = next(at for at in range(step + 1, step + every + 1) if interval.at_step(at, 0.0, None))
    assert interval.next_step(step) == due


def test_no_save_before_the_first_step():
    assert not EverySteps(1).at_step(0, 1e9, 1.0) and not EveryEpochs(1).at_epoch(0, 1e9, 1.0)


def test_epochs_are_due_between_epochs_alone():
    interval = EveryEpochs(2)
    assert [interval.at_epoch(epochs, 0.0, None) for epochs in range(5)] == [False, False, True, False, True]
    assert not interval.at_step(2, 1e9, 1.0) and interval.next_step(2) is None


@pytest.mark.parametrize("ask", ["at_step", "at_epoch"])
def test_seconds_are_due_once_they_have_gone_by(ask):
    assert [getattr(EverySeconds(60), ask)(7, seconds, None) for seconds in (0, 59.9, 60, 100)] == [False] * 2 + [
        True
    ] * 2


def test_auto_follows_the_cost_of_a_save():
    interval = Auto(7200.0)
    for cost in (0.1, 5.0, 60.0):
        due = young_daly(cost, 7200.0)
        assert interval.at_step(1, due, cost) and not interval.at_step(1, 0.99 * due, cost)
        assert interval.at_epoch(1, due, cost) and interval.next_step(1) is None
    assert interval.at_step(1, young_daly(1.0, 7200.0), None) and not interval.at_step(1, 100.0, None)


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("500 steps", EverySteps(500)),
        ("1 step", EverySteps(1)),
        ("2 epochs", EveryEpochs(2)),
        (" 1  epoch ", EveryEpochs(1)),
        ("10 minutes", EverySeconds(600)),
        ("0.5 hours", EverySeconds(1800)),
        ("90 seconds", EverySeconds(90)),
        ("1 day", EverySeconds(86400)),
        (EverySteps(3), EverySteps(3)),
    ],
)
def test_words_for_intervals(text, interval):
    assert read_interval(text) == interval


def test_auto_needs_the_time_between_failures():
    assert read_interval("auto", "6 hours") == Auto(21600.0)
    with pytest.raises(ConfigError, match='"auto" without a mean time.*"6 hours"'):
        read_interval("auto")


@pytest.mark.parametrize(
    "text",
    ["", "500", 500, None, "0 steps", "-1 epochs", "1.5 steps", "nan steps", "inf hours", "0 minutes", "2 weeks"],
)
def test_other_words_are_refused(text):
    with pytest.raises(ConfigError, match='Write for example "500 steps"'):
        read_interval(text)


@pytest.mark.parametrize("text", ["0 hours", "5 steps", "6", 6, None, "nan seconds"])
def test_a_time_has_a_unit(text):
    with pytest.raises(ConfigError, match='Write for example "30 seconds"'):
        read_seconds(text)
