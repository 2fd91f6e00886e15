"""What workers hand to each other between steps: bytes, and the chief's checkpoint."""

import pathlib

import keras
import numpy as np
import pytest

import tfdist
from tfdist.callbacks import BackupAndRestore
from tfdist.step.agree import PIECE_BYTES, gather_bytes, share_bytes
from tfdist.strategy import share_of
from tfdist.testing import run_cluster

X, Y = np.arange(24, dtype="float32").reshape(12, 2) / 24, np.ones((12, 1), "float32")


def pieces(rank):
    return b"" if rank == 1 else bytes(range(200)) * (rank + 1)


def exchange(folder):
    """On each worker: what it got, the history of a resumed training, and what it says of a damaged checkpoint."""
    strategy = tfdist.make_strategy("multiworker")
    share = share_of(strategy)
    own = pathlib.Path(folder, str(share.worker))  # no worker sees the folder of another
    gathered = gather_bytes(strategy, share, pieces(share.worker))
    large = np.random.RandomState(0).bytes(PIECE_BYTES + 3)
    shared = share_bytes(strategy, share, large if share.worker == 0 else b"not the chief's")
    histories = [train(strategy, own, epochs) for epochs in (1, 2)]
    for path in own.glob("step-*/state.json"):
        path.write_text(path.read_text()[:-1])
    with pytest.raises(tfdist.CheckpointError, match="none of its checkpoints is whole") as refusal:
        train(strategy, own, 3)
    return gathered, shared == large, histories, str(refusal.value), sorted(path.name for path in own.glob("*"))


def train(strategy, folder, epochs):
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    backup = BackupAndRestore(folder, delete_checkpoint=False)
    history = tfdist.fit(model, X, Y, 4, epochs=epochs, callbacks=[backup], verbose=0)
    return history.history["loss"], model.get_weights()


@pytest.mark.process
def test_the_chief_gives_what_the_others_do_not_see(tmp_path):
    results = run_cluster(exchange, 2, args=(str(tmp_path),))
    (gathered, is_same, histories, refusal, files), other = results
    assert gathered == other[0] == [pieces(0), pieces(1)]
    assert is_same and other[1]
    first, second = histories
    assert second[0][:1] == first[0] and len(second[0]) == 2
    for mine, theirs in zip(second[1], other[2][1][1], strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert refusal == other[3]
    assert files == ["step-00000006"] and other[4] == []
