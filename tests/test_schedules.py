"""Scaling rules, warm-up and decays: exact values on small tables, and properties for any lengths."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdist.durations import Duration, read_duration
from tfdist.errors import ConfigError
from tfdist.scaling import AUTO_RULES
from tfdist.schedules import Decay, WarmUp, auto_rule, drop_warmup, has_schedule, make_schedule, scale


def rates(schedule, steps):
    return [float(schedule(np.int64(s))) if callable(schedule) else schedule for s in steps]


@pytest.mark.parametrize(
    ("rule", "optimizer", "expected"),
    [
        ("linear", "adam", 0.4),
        ("sqrt", "sgd", 0.2),
        ("none", "sgd", 0.1),
        ("auto", "SGD", 0.4),
        ("auto", "AdamW", 0.2),
        ("auto", "lamb", 0.2),
    ],
)
def test_rate_follows_rule(rule, optimizer, expected):
    assert scale(0.1, 256, 1024, rule, optimizer).rate == pytest.approx(expected)


def test_scaling_says_base_rule_batch_and_rate_in_one_line():
    assert str(scale(0.1, 256, 1024)) == "learning rate 0.4: base 0.1 at batch 256, rule linear, global batch 1024"


def test_auto_reads_optimizer_objects_subclasses_and_wrapped_ones():
    class Mine(keras.optimizers.AdamW):
        pass

    assert auto_rule(Mine()) == "sqrt"
    assert auto_rule(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())) == "linear"


def test_auto_knows_keras_optimizers_only():
    assert set(AUTO_RULES) <= {name.lower() for name in dir(keras.optimizers)}


def test_auto_refuses_optimizers_without_a_published_rule():
    with pytest.raises(ConfigError, match="'auto' with the optimizer lion.*State linear, sqrt or none"):
        scale(0.1, 256, 1024, "auto", "lion")
    assert scale(0.1, 256, 256, "auto", "lion").rate == 0.1


def test_unknown_rule_and_schedule_are_refused():
    with pytest.raises(ConfigError, match="choose one of auto, linear, sqrt, none"):
        scale(0.1, 256, 1024, "square")
    with pytest.raises(ConfigError, match="choose one of constant, cosine, step, polynomial"):
        Decay("linear")


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"total_steps": 3}, [1.0, 1.0, 1.0]),
        ({"total_steps": 8, "warmup_steps": 4, "start": 0.2}, [0.2, 0.4, 0.6, 0.8, 1, 1, 1, 1]),
        ({"total_steps": 4, "decay": Decay("cosine")}, [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0]),
        ({"total_steps": 6, "warmup_steps": 2, "start": 0, "decay": Decay("cosine", 0.1)}, [0, 0.5, 1, None, 0.55]),
        ({"total_steps": 4, "decay": Decay("polynomial")}, [1, 0.75, 0.5, 0.25, 0, 0]),
        ({"total_steps": 4, "decay": Decay("polynomial", 0.2, 2.0)}, [1, 0.65, 0.4, 0.25, 0.2]),
        (
            {"total_steps": 6, "warmup_steps": 2, "start": 0.5, "decay": Decay("polynomial", power=2.0)},
            [0.5, 0.75, 1, 0.5625, 0.25, 0.0625, 0],
        ),
        ({"total_steps": 6, "decay": Decay("step", boundaries=(2, 4), step_factor=0.5)}, [1, 1, 0.5, 0.5, 0.25]),
        (
            {"total_steps": 6, "warmup_steps": 2, "start": 0, "decay": Decay("step", boundaries=(3,))},
            [0, 0.5, 1, 0.1, 0.1],
        ),
    ],
)
def test_schedule_gives_these_rates(kwargs, expected):
    got = rates(make_schedule(1.0, **kwargs), range(len(expected)))
    assert [g if e is not None else None for g, e in zip(got, expected, strict=True)] == pytest.approx(
        expected, abs=1e-6
    )


decays = st.one_of(
    st.just(Decay()),
    st.builds(Decay, st.just("cosine"), st.floats(0, 1)),
    st.builds(Decay, st.just("polynomial"), st.floats(0, 1), st.floats(0.5, 3)),
    st.builds(lambda gap: Decay("step", boundaries=(60 + gap, 70 + gap)), st.integers(0, 9)),
)


@settings(max_examples=25, deadline=None)
@given(
    peak=st.floats(1e-4, 10), start=st.floats(0, 1), warmup=st.integers(1, 60), after=st.integers(20, 40), decay=decays
)
def test_warmup_rises_to_the_peak_and_decay_never_rises(peak, start, warmup, after, decay):
    schedule = make_schedule(peak, total_steps=60 + after, warmup_steps=warmup, start=start * peak, decay=decay)
    got = np.array(rates(schedule, range(60 + after)))
    assert got[0] == pytest.approx(start * peak, abs=1e-6 * peak)
    assert got[warmup] == pytest.approx(peak, rel=1e-4)
    assert np.all(np.diff(got[: warmup + 1]) >= -1e-4 * peak)
    assert np.all(np.diff(got[warmup:]) <= 1e-6 * peak)
    assert np.max(np.abs(np.diff(got[: warmup + 1]))) <= peak * (1 - start) / warmup + 1e-4 * peak  # no jump at its end


def test_warmup_must_end_before_the_training():
    with pytest.raises(ConfigError, match="A warm-up of 8 steps in a training of 8"):
        make_schedule(1.0, total_steps=8, warmup_steps=8)


@pytest.mark.parametrize("boundaries", [(), (3,)])
def test_step_boundaries_lie_after_the_warmup(boundaries):
    with pytest.raises(ConfigError, match="Step boundaries at"):
        make_schedule(1.0, total_steps=9, warmup_steps=5, decay=Decay("step", boundaries=boundaries))


def test_warmup_is_serialised_and_read_again():
    schedule = make_schedule(1.0, total_steps=9, warmup_steps=4, start=0.1, decay=Decay("step", boundaries=(6,)))
    again = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert isinstance(again, WarmUp)
    assert rates(again, range(9)) == rates(schedule, range(9))


def test_dropped_warmup_leaves_a_stock_schedule_of_the_same_rates():
    schedule = make_schedule(1.0, total_steps=9, warmup_steps=4, start=0.1, decay=Decay("polynomial"))
    optimizer = keras.optimizers.SGD(schedule)
    drop_warmup(optimizer, schedule)
    assert optimizer.get_config()["learning_rate"]["class_name"] == "WarmUp"  # still at step 0
    optimizer.iterations.assign(4)
    drop_warmup(optimizer, schedule)
    stock = optimizer.get_config()["learning_rate"]
    assert stock["module"] == "keras.optimizers.schedules"
    after = keras.optimizers.schedules.deserialize(stock)
    assert rates(after, range(4, 10)) == pytest.approx(rates(schedule, range(4, 10)))


def test_optimizer_says_whether_it_has_a_schedule():
    scheduled = keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(1.0, 5))
    assert has_schedule(scheduled)
    assert has_schedule(keras.optimizers.LossScaleOptimizer(scheduled))
    assert not has_schedule(keras.optimizers.SGD(0.1))


@pytest.mark.parametrize(
    ("text", "duration", "steps"),
    [
        ("5 epochs", Duration(5, "epochs"), 50),
        ("0.25 epochs", Duration(0.25, "epochs"), 2),
        ("1 epoch", Duration(1, "epochs"), 10),
        ("500 steps", Duration(500, "steps"), 500),
        (0, Duration(0, "steps"), 0),
    ],
)
def test_duration_becomes_steps(text, duration, steps):
    assert read_duration(text) == duration
    assert read_duration(str(duration)) == duration
    assert duration.steps(steps_per_epoch=10) == steps


@pytest.mark.parametrize(
    "value", ["5", 5, "five epochs", "-1 epochs", "1.5 steps", "3 days", "inf epochs", None, True, "nan steps"]
)
def test_duration_without_unit_is_refused(value):
    with pytest.raises(ConfigError, match="has a unit"):
        read_duration(value)
