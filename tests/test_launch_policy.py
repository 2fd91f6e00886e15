"""When a gang starts again: a table of what has happened so far, without a process."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdist.launch.policy import Budget, Outcome, Restart, Stop, decide

MANY = Budget(restarts=50, preemptions=50)


def ended(*codes_and_steps):
    return [Outcome(code, "worker-1", step) for code, step in codes_and_steps]


@pytest.mark.parametrize("code", [0, 64])
def test_what_has_finished_or_was_refused_never_starts_again(code):
    assert decide(ended((1, 3), (code, 5)), MANY) == Stop(code)


def test_pauses_double_up_to_a_minute():
    outcomes = ended(*((69, step) for step in range(9)))
    pauses = [decide(outcomes[: count + 1], MANY).pause for count in range(9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.parametrize("code", [1, 7, 69])
def test_failures_count_against_their_budget(code):
    outcomes = ended((code, 1), (75, 2), (69, 3), (code, 4))
    assert decide(outcomes[:1], Budget(restarts=2)) == Restart(1, "restart 1 of at most 2")
    assert decide(outcomes[:3], Budget(restarts=2)) == Restart(2, "restart 2 of at most 2")
    assert decide(outcomes, Budget(restarts=2)) == Stop(code, "3 failures, and --max_restarts=2.")
    assert decide(outcomes[:1], Budget(restarts=0)) == Stop(code, "1 failure, and --max_restarts=0.")


def test_preemptions_have_a_budget_of_their_own():
    outcomes = ended((1, 1), (1, 2), (75, 3), (75, 4))
    budget = Budget(restarts=2, preemptions=1)
    assert decide(outcomes[:3], budget) == Restart(0, "start 1 of at most 1 after a preemption")
    assert decide(outcomes, budget) == Stop(75, "Preempted 2 times, and --max_preemptions=1.")


def test_preemptions_that_leave_no_time_to_train_are_paused_between():
    outcomes = ended(*[(75, 8)] * 4, (75, 9))
    assert [decide(outcomes[: count + 1], MANY).pause for count in range(5)] == [0, 1, 2, 4, 0]


def test_third_failure_in_a_row_at_the_same_step_is_the_last():
    outcomes = ended((1, 9), (69, 20), (1, 20), (1, 20))
    assert isinstance(decide(outcomes[:3], MANY), Restart)
    why = "3 failures in a row at the same place, after step 20, worker-1's."
    assert decide(outcomes, MANY) == Stop(1, why)


def test_preemption_between_does_not_hide_that_a_step_fails():
    outcomes = ended((1, 20), (75, 15), (1, 20), (75, 18), (1, 20))
    assert isinstance(decide(outcomes, MANY), Stop)


def test_failures_of_a_program_that_tells_no_step_are_only_counted():
    assert isinstance(decide(ended(*[(1, None)] * 9), MANY), Restart)


codes = st.sampled_from([1, 3, 69, 75])
histories = st.lists(st.tuples(codes, st.none() | st.integers(0, 3)), min_size=1, max_size=12)


@given(histories, st.integers(0, 5), st.integers(0, 5))
def test_no_job_starts_more_often_than_its_budgets_allow(history, restarts, preemptions):
    outcomes = ended(*history)
    decisions = [decide(outcomes[: end + 1], Budget(restarts, preemptions)) for end in range(len(outcomes))]
    started = [outcome for outcome, decision in zip(outcomes, decisions) if isinstance(decision, Restart)]
    assert sum(outcome.code == 75 for outcome in started) <= preemptions
    assert sum(outcome.code != 75 for outcome in started) <= restarts
    for outcome, decision in zip(outcomes, decisions):
        if isinstance(decision, Stop):
            assert decision.code == outcome.code and decision.why
        else:
            assert 0 <= decision.pause <= 60
