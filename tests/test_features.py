"""I1 for one feature of Keras after another: each trains under tfdist to the weights of plain Keras on one device."""

import features
import numpy as np
import pytest
import strategies

from tfdist.testing import run_cluster

# Half-precision gradients are rounded for each part of a batch, so that they depend on the parts.
TOLERANCE = {"mixed_bfloat16": 2e-2, "mixed_float16": 2e-3}
# A metric that a train_step updates itself weighs replicas alike, whatever their rows.
LOSS_TOLERANCE = {"two_optimizers": 1e-2}
# The two exceptions to I1: a micro-batch has batch statistics of its own, and random layers draw on each replica.
NOT_ACCUMULATED = {"synchronised_batch_normalisation", "random_layers", "stateful_recurrent"}
# A stateful layer has a state for each row of a batch, so its batch cannot be split.
ONE_REPLICA_ONLY = {"random_layers", "stateful_recurrent"}


@pytest.fixture(scope="module")
def expected():
    return run_cluster(features.reference, 1, (list(features.FEATURES),), timeout=300)[0]


@pytest.mark.process
@pytest.mark.parametrize(
    ("topology", "accumulate"), [("single", 1), ("mirrored", 3), ("multiworker2", 3), ("multiworker3", 1)]
)
def test_features_train_as_on_one_device(topology, accumulate, expected):
    excepted = (NOT_ACCUMULATED if accumulate > 1 else set()) | (ONE_REPLICA_ONLY if topology != "single" else set())
    names = [name for name in features.FEATURES if name not in excepted]
    workers = run_cluster(
        features.distributed, strategies.WORKERS[topology], (topology, names, accumulate), timeout=600
    )
    wrong = [
        problem for name in names for worker in workers for problem in problems(name, expected[name], worker[name])
    ]
    assert not wrong, "\n".join(wrong)


def problems(name, expected, found):
    for one, other in zip(expected["weights"], found["weights"], strict=True):
        distance = np.max(np.abs(one - other)) / max(np.max(np.abs(one)), 1e-9)
        if not distance <= TOLERANCE.get(name, 1e-5):
            yield f"{name}: weights of shape {one.shape} are off by {distance:.2g}"
    if not np.allclose(expected["loss"], found["loss"], rtol=LOSS_TOLERANCE.get(name, TOLERANCE.get(name, 1e-4))):
        yield f"{name}: losses {found['loss']} instead of {expected['loss']}"
    if set(expected["logs"]) != set(found["logs"]):
        yield f"{name}: logs {sorted(found['logs'])} instead of {sorted(expected['logs'])}"
    for log in set(expected["logs"]) & set(found["logs"]) - {"loss"}:
        if not np.allclose(expected["logs"][log], found["logs"][log], rtol=2e-3, atol=1e-6):
            yield f"{name}: {log} is {found['logs'][log]} instead of {expected['logs'][log]}"
    if expected["scale"] != found["scale"]:
        yield f"{name}: loss scale {found['scale']} instead of {expected['scale']}"
