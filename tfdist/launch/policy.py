"""What follows when a gang has ended: whether it starts again, and after what pause. Values only, no time passes."""

import dataclasses
from collections.abc import Sequence

from tfdist.errors import FINISHED, PREEMPTED, WRONG_INPUT

SAME_STEP_FAILURES = 3
# Doubling pauses are what Kubernetes restarts containers with (10 s, 20 s ... at most 300 s,
# https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy). These are shorter: a gang's start
# takes seconds in itself, and all of its machines stand idle meanwhile.
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a gang has ended.

    Attributes:
      code: 0 finished, 64 wrong input, 69 a task was lost, 75 preempted and saved, anything else a task's own failure.
      task: the name of the task that was the cause.
      step: how many optimizer steps of the whole training were through, as far as its heartbeat said so.
    """

    code: int
    task: str
    step: int | None = None


@dataclasses.dataclass(frozen=True)
class Budget:
    """How often a job may start again: after failures, and after preemptions."""

    restarts: int = 3
    preemptions: int = 100


@dataclasses.dataclass(frozen=True)
class Stop:
    """The job ends with `code`. `why`: a sentence, empty if the code says it all."""

    code: int
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Restart:
    """The gang starts again after `pause` seconds. `why`: which restart it is, of how many."""

    pause: float
    why: str


def decide(outcomes: Sequence[Outcome], budget: Budget) -> Stop | Restart:
    """What follows the last of `outcomes`, which are those of all gangs of a job so far, the first one first."""
    last = outcomes[-1]
    if last.code in (FINISHED, WRONG_INPUT):
        return Stop(last.code)
    alike = [outcome for outcome in outcomes if (outcome.code == PREEMPTED) == (last.code == PREEMPTED)]
    if last.code == PREEMPTED:
        return _after_preemptions(alike, budget.preemptions)
    return _after_failures(alike, budget.restarts)


def _after_preemptions(outcomes, budget):
    count = len(outcomes)
    if count > budget:
        return Stop(PREEMPTED, f"Preempted {count} times, and --max_preemptions={budget}.")
    # At once, unless a task says over and over that its machine goes away, and nothing is trained between.
    pause = _pause(_in_a_row(outcomes) - 1)
    return Restart(pause, f"start {count} of at most {budget} after a preemption")


def _after_failures(outcomes, budget):
    last, count = outcomes[-1], len(outcomes)
    if last.step is not None and _in_a_row(outcomes) == SAME_STEP_FAILURES:
        return Stop(
            last.code,
            f"{SAME_STEP_FAILURES} failures in a row at the same place, after step {last.step}, {last.task}'s.",
        )
    if count > budget:
        return Stop(last.code, f"{count} failure{'s' if count > 1 else ''}, and --max_restarts={budget}.")
    return Restart(_pause(count), f"restart {count} of at most {budget}")


def _in_a_row(outcomes) -> int:
    """How many of the last outcomes were at the same step."""
    count = 0
    for outcome in reversed(outcomes):
        if outcome.step != outcomes[-1].step:
            break
        count += 1
    return count


def _pause(count: int) -> float:
    return 0.0 if count < 1 else min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(count - 1, 10))
