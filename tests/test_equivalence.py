"""I1: training on any topology gives the weights of one device at the same global batch."""

import matrix
import numpy as np
import pytest
import strategies

from tfdist.testing import run_cluster

TOLERANCE = {"sgd": 1e-5, "adam": 1e-4, "adamw": 1e-4}


@pytest.fixture(scope="module")
def small_reference():
    return run_cluster(matrix.reference, 1, (matrix.small_runs(),), timeout=400)[0]


@pytest.fixture(scope="module")
def full_reference():
    return run_cluster(matrix.reference, 1, (matrix.all_runs(),), timeout=3600)[0]


@pytest.mark.process
@pytest.mark.parametrize("topology", strategies.WORKERS)
def test_weights_equal_those_of_one_device(topology, small_reference):
    check(topology, matrix.small_runs(), small_reference, timeout=900)


@pytest.mark.full
@pytest.mark.parametrize("topology", strategies.WORKERS)
def test_weights_equal_those_of_one_device_in_the_whole_matrix(topology, full_reference):
    check(topology, matrix.all_runs(), full_reference, timeout=7200)


def check(topology, runs, expected, timeout):
    workers = run_cluster(matrix.distributed, strategies.WORKERS[topology], (topology, runs), timeout=timeout)
    wrong = [problem for found in zip(runs, expected, *workers, strict=True) for problem in problems(*found)]
    assert not wrong, "\n".join(wrong)


def problems(run, expected, chief, *others):
    """What is wrong with a run: its distance from one device, or workers that differ (I2)."""
    distance = max(map(relative_distance, expected["weights"], chief["weights"]))
    if not distance <= TOLERANCE[run.optimizer]:
        yield f"{run}: weights are off by {distance:.2g}"
    if not np.allclose(expected["loss"], chief["loss"], rtol=1e-4):
        yield f"{run}: losses {chief['loss']} instead of {expected['loss']}"
    for name, value in expected["evaluation"].items():
        # Keras averages the losses of several outputs over batches, not rows.
        if not name.endswith("_loss") and not np.isclose(value, chief["evaluation"][name], rtol=1e-4):
            yield f"{run}: {name} is {chief['evaluation'][name]} instead of {value}"
    for worker in (chief, *others):
        if differ(worker["copies"], chief["copies"]):
            yield f"{run}: the replicas' variables differ"
    for other in others:
        if chief["evaluation"] != other["evaluation"]:
            yield f"{run}: the workers' evaluations differ"


def differ(copies, of_chief):
    """Whether a device's copy of some variable differs from the chief's in a single bit."""
    return any(
        not np.array_equal(copy, first[0]) for same, first in zip(copies, of_chief, strict=True) for copy in same
    )


def relative_distance(expected, found):
    return np.max(np.abs(expected - found)) / max(np.max(np.abs(expected)), 1e-12)
