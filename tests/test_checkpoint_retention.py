"""Which checkpoints stay: unions of rules, under which the newest whole one is never lost."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdist.checkpoint import Retention
from tfdist.errors import ConfigError

some = settings(max_examples=300, deadline=None, derandomize=True)
losses = st.floats(allow_nan=True) | st.integers(0, 3).map(float)
metrics = st.just({}) | st.fixed_dictionaries({"loss": losses})
standings = st.dictionaries(st.integers(0, 60), st.none() | metrics, max_size=20)
retentions = st.builds(
    Retention,
    st.integers(1, 4),
    st.integers(0, 15),
    st.integers(0, 3),
    st.just("loss"),
    st.sampled_from(["min", "max"]),
)


def kept(retention, standing):
    gone = retention.surplus(standing)
    return {step: value for step, value in standing.items() if step not in gone}


@some
@given(retentions, standings)
def test_the_last_whole_ones_and_all_behind_them_stay(retention, standing):
    whole = sorted(step for step, value in standing.items() if value is not None)
    stay = kept(retention, standing)
    assert set(whole[-retention.keep_last :]) <= set(stay)
    assert all(step in stay for step in standing if not whole or step >= whole[-1])


@some
@given(retentions, standings)
def test_damaged_ones_go_once_a_newer_whole_one_stands(retention, standing):
    newest = max((step for step, value in standing.items() if value is not None), default=-1)
    damaged = [step for step, value in standing.items() if value is None]
    assert [step for step in damaged if step in kept(retention, standing)] == [s for s in damaged if s > newest]


@some
@given(retentions, st.dictionaries(st.integers(0, 60), metrics, max_size=20))
def test_after_each_commit_or_once_at_the_end_is_the_same(retention, standing):
    stay = {}
    for step in sorted(standing):
        stay = kept(retention, {**stay, step: standing[step]})
    assert list(stay) == sorted(kept(retention, standing))


@pytest.mark.parametrize(
    ("retention", "stay"),
    [
        (Retention(), [80, 90, 100]),
        (Retention(keep_last=1), [100]),
        (Retention(keep_last=1, keep_every=20), [20, 40, 60, 80, 100]),
        (Retention(keep_last=1, keep_every=25), [30, 50, 80, 100]),
        (Retention(keep_last=1, keep_best=2, best_metric="loss"), [40, 50, 100]),
        (Retention(keep_last=1, keep_best=2, best_metric="loss", best_mode="max"), [10, 90, 100]),
        (Retention(keep_last=1, keep_best=2, best_metric="accuracy"), [100]),
    ],
)
def test_rules(retention, stay):
    steps = {step: {"loss": abs(step - 45.0)} for step in range(10, 100, 10)}
    assert list(kept(retention, {**steps, 100: {"loss": math.nan}})) == stay


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keep_last": 0}, "keep_last=0: it is a whole number, 1 or more"),
        ({"keep_every": 1.5}, "keep_every=1.5"),
        ({"keep_best": -1}, "keep_best=-1"),
        ({"keep_best": 1}, "keep_best=1 without best_metric"),
        ({"best_mode": "least"}, 'best_mode=\'least\': it is "min" or "max"'),
    ],
)
def test_wrong_rules_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        Retention(**wrong)
