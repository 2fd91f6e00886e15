"""Two ways to do the same, timed in turns in one process, so that what disturbs the machine disturbs both."""

import statistics
import time
from collections.abc import Callable

ROUNDS = 9
HEADER = "| | elapsed time: median (range) | CPU time: median |\n|---|---|---|"


def row(name: str, ours: Callable, theirs: Callable, rounds: int = ROUNDS) -> str:
    """A row of a table of ratios, above 1 where ours is faster; a first round warms up and is left out."""
    elapsed, cpu = zip(*[_ratios(ours, theirs) for _ in range(rounds + 1)][1:])
    median = statistics.median
    return f"| {name} | {median(elapsed):.2f} ({min(elapsed):.2f}-{max(elapsed):.2f}) | {median(cpu):.2f} |"


def _ratios(ours, theirs) -> list[float]:
    return [one / other for one, other in zip(_cost(theirs), _cost(ours))]


def _cost(act) -> tuple[float, float]:
    start, cpu = time.perf_counter(), time.process_time()
    act()
    return time.perf_counter() - start, time.process_time() - cpu
