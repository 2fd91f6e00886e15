"""What checkpoints cost: `tfdist.callbacks.BackupAndRestore` against Keras's and `tf.train.Checkpoint`, as ratios.

python tests/benchmarks/checkpoints.py [folder on the disk to write to]

25 million parameters with Adam: 300 MB of state. Each pair is measured in turns, in one run.
"""

import functools
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import keras
import numpy as np
import tensorflow as tf

import tfdist

WIDTH, BATCH, ROUNDS = 3300, 32, 5
SAVE_AT = 20  # the step after which is saved; as many but one follow
HEADER = "| | ours | theirs | ratio: median (range) | goal |\n|---|---|---|---|---|"


def model(width=WIDTH):
    inputs = keras.Input((784,))
    hidden = inputs
    for _ in range(3):
        hidden = keras.layers.Dense(width, "relu")(hidden)
    made = keras.Model(inputs, keras.layers.Dense(10, "softmax")(hidden))
    made.compile(keras.optimizers.Adam(1e-5), "sparse_categorical_crossentropy")
    made.optimizer.build(made.trainable_variables)
    return made


def data(steps):
    rng = np.random.default_rng(0)
    return rng.normal(size=(steps * BATCH, 784)).astype("float32"), rng.integers(0, 10, steps * BATCH)


class Clock(keras.callbacks.Callback):
    """Notes when each step ends. The first of the callbacks, so that what others do belongs to the next step."""

    def __init__(self):
        super().__init__()
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(time.perf_counter())

    def costs(self):
        """Seconds that the step with the save took longer than one without, and those that all from it on did."""
        steps = np.diff(self.ends)
        usual, since = statistics.median(steps[1 : SAVE_AT - 1]), steps[SAVE_AT - 1 :]
        return since[0] - usual, since.sum() - usual * len(since)


class Peak:
    """The most memory that this process has while entered, in bytes."""

    def __enter__(self):
        self.most = resident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _watch(self):
        while not self._over.wait(0.002):
            self.most = max(self.most, resident())


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def backup(own, folder, save_freq, **options):
    kind = tfdist.callbacks.BackupAndRestore if own else keras.callbacks.BackupAndRestore
    return kind(folder, save_freq, **options)


def train(made, own, steps, *callbacks):
    """One epoch in our `fit` or in Keras's."""
    fit = functools.partial(tfdist.fit, made) if own else made.fit
    fit(*data(steps), batch_size=BATCH, shuffle=False, verbose=0, callbacks=list(callbacks))


def in_turns(act):
    """What `act(own)` gives for ours and for theirs, in each round but the first, which warms up."""
    pairs = [(act(True), act(False)) for _ in range(ROUNDS + 1)][1:]
    return zip(*pairs)


def line(name, ours, theirs, goal, unit="s"):
    ratios = [one / other for one, other in zip(ours, theirs)]
    values = " | ".join(f"{statistics.median(of):.3f} {unit}" for of in (ours, theirs))
    return f"| {name} | {values} | {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) | {goal} |"


def blocked(folder):
    """What a save costs the training: at its step, and with the slower steps behind it."""
    made = {own: model() for own in (True, False)}

    def costs(own):
        clock = Clock()
        train(made[own], own, 2 * SAVE_AT - 1, clock, backup(own, fresh(folder), SAVE_AT))
        return clock.costs()

    (ours, ours_after), (theirs, theirs_after) = (zip(*pairs) for pairs in in_turns(costs))
    yield line("a save blocks the training", ours, theirs, "<= 0.15")
    yield line("a save blocks the training and slows the steps after it", ours_after, theirs_after, "<= 0.15")


def written(folder):
    """A whole save, with nothing beside it, until it is committed: theirs is not brought to the disk."""
    made = model()
    checkpoint = tf.train.Checkpoint(model=made, optimizer=made.optimizer)

    def seconds(own):
        if not own:
            return timed(lambda: checkpoint.save(f"{fresh(folder)}/checkpoint"))
        told = []
        tell = lambda event, **values: told.append(values)  # noqa: E731
        train(made, True, 1, backup(True, fresh(folder), "epoch", delete_checkpoint=False, tell=tell))
        return told[-1]["blocked"] + told[-1]["seconds"]

    yield line("a save until it is written, against tf.train.Checkpoint", *in_turns(seconds), "<= 1.2")


def restored(folder):
    """From the call of `fit` on a model that is not traced to the end of the first step."""
    saved = {own: f"{folder}/saved-{own}" for own in (True, False)}
    for own, path in saved.items():
        train(model(), own, 2, backup(own, path, 1, delete_checkpoint=False))

    def seconds(own):
        path, clock, made = fresh(folder), Clock(), model()
        shutil.copytree(saved[own], path, dirs_exist_ok=True)
        start = time.perf_counter()
        fit = functools.partial(tfdist.fit, made) if own else made.fit
        callbacks = [clock, backup(own, path, False)]
        fit(*data(2), batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        return clock.ends[0] - start

    yield line("restore, to the end of the first step", *in_turns(seconds), "<= 1.0")


def memory(folder):
    """What a process's first save takes, as a share of the state."""
    made = model()
    state = sum(variable.numpy().nbytes for variable in made.optimizer.variables) / 2 * 3
    train(made, True, SAVE_AT)
    with Peak() as without:
        train(made, True, SAVE_AT)
    with Peak() as peak:
        train(made, True, 2 * SAVE_AT - 1, backup(True, fresh(folder), SAVE_AT))
    share = (peak.most - without.most) / state
    yield f"| memory of a save above a training without, share of the state | {share:.2f} | | | <= 1.1 |"


def listening(folder):
    """Steps a second of a small model."""
    made = model(64)

    def seconds(listens):
        callback = backup(True, fresh(folder), False, grace=30.0 if listens else None)
        return timed(lambda: train(made, True, 3000, callback))

    listened, deaf = in_turns(seconds)
    yield line(
        "steps a second, listening against not", [1 / t for t in listened], [1 / t for t in deaf], ">= 0.99", "/3000"
    )


def timed(act):
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def fresh(folder):
    """An empty folder; what was there before is gone."""
    for path in pathlib.Path(folder).glob("now*"):
        shutil.rmtree(path)
    return tempfile.mkdtemp(prefix="now", dir=folder)


PARTS = {part.__name__: part for part in (memory, blocked, written, restored, listening)}


def main(part=None, folder=None):
    """Each part in a process of its own, or the one that is named."""
    if part in PARTS:
        for found in PARTS[part](folder):
            print(found, flush=True)
        return
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory(dir=part) as made:
        for name in PARTS:
            subprocess.run([sys.executable, __file__, name, made], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
