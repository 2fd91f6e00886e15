"""What is each worker's own: what its replicas' metrics have counted, and its generators of random numbers."""

import base64
import json

import numpy as np
import tensorflow as tf

from tfdist.batching import Share
from tfdist.errors import CheckpointError
from tfdist.snapshot import tree as trees
from tfdist.snapshot.metrics import put_metrics, take_metrics
from tfdist.snapshot.rng import put_rng, take_rng
from tfdist.step.agree import gather_bytes


def take_workers(model, share: Share, problem: str) -> list[dict]:
    """That of all workers, by rank. Every worker calls it.

    Raises: CheckpointError, on all workers, if one of them has a `problem`.
    """
    own = {"metrics": take_metrics(model), "rng": take_rng(), "problem": problem}
    workers = [_unpacked(data) for data in gather_bytes(model.distribute_strategy, share, _packed(own))]
    for worker in workers:
        if worker["problem"]:
            raise CheckpointError(worker["problem"])
    return workers


def put_workers(model, share: Share, workers: list[dict], *, with_metrics: bool) -> None:
    """Puts back what the workers had; of another number, the first ones' generators go on."""
    if with_metrics:
        put_metrics(model, [counts for worker in workers for counts in worker["metrics"]], share.first_replica)
    if share.worker < len(workers):
        put_rng(workers[share.worker]["rng"])


def _packed(tree) -> bytes:
    text, arrays = trees.encode(tree)
    return json.dumps([text, {name: _as_json(array) for name, array in arrays.items()}]).encode()


def _unpacked(data: bytes):
    text, arrays = json.loads(data)
    return trees.decode(text, lambda name: _from_json(*arrays[name]))


def _as_json(array: np.ndarray) -> tuple[str, tuple[int, ...], str]:
    return array.dtype.name, array.shape, base64.b64encode(array.tobytes()).decode()


def _from_json(dtype: str, shape: list[int], data: str) -> np.ndarray:
    # TensorFlow knows the names of types that NumPy does not, such as bfloat16.
    return np.frombuffer(base64.b64decode(data), tf.as_dtype(dtype).as_numpy_dtype).reshape(shape)
