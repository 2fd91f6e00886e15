"""The equivalence matrix: the same training by plain Keras on one device, and by tfdist on every topology.

Not a test itself: `reference` and `distributed` run in processes of their own.
"""

import dataclasses
import itertools

import keras
import numpy as np
import strategies

import tfdist

OPTIMIZERS = ("sgd", "adam", "adamw")
VARIATIONS = (
    "plain", "global_clipnorm", "clipnorm", "ema", "regularisers", "sample_weights", "class_weights", "two_outputs",
)  # fmt: skip
EXAMPLES = {"divides": 192, "partial": 203, "last_smaller_than_workers": 193}
BATCH, EPOCHS = 24, 3


@dataclasses.dataclass(frozen=True)
class Run:
    """One training: 24 optimizer steps at least."""

    optimizer: str
    variation: str = "plain"
    accumulate: int = 1
    batches: str = "partial"


def all_runs() -> list[Run]:
    return [Run(*parts) for parts in itertools.product(OPTIMIZERS, VARIATIONS, (1, 4), EXAMPLES)]


def small_runs() -> list[Run]:
    """Each optimizer with each variation once, and the plain one with all accumulations and batches."""
    runs = [Run(optimizer, variation, 4) for optimizer in OPTIMIZERS for variation in VARIATIONS]
    return list(dict.fromkeys(runs + [Run("sgd", "plain", k, b) for k, b in itertools.product((1, 4), EXAMPLES)]))


def reference(runs: list[Run]) -> list[dict]:
    """What `keras.Model.fit` gives on one device."""
    cache: dict = {}
    results = []
    for run in runs:
        key = dataclasses.replace(run, accumulate=1)
        if key not in cache:
            model, (x, y), extras = _model(run), _data(run), _extras(run)
            history = model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, **extras)
            cache[key] = _result(model, history, model.evaluate(x, y, verbose=0, return_dict=True))
        results.append(cache[key])
    return results


def distributed(topology: str, runs: list[Run]) -> list[dict]:
    """What tfdist gives on this worker of `topology`."""
    strategy = strategies.make(topology)
    results = []
    for run in runs:
        with strategy.scope():
            model = _model(run)
        (x, y), extras = _data(run), _extras(run)
        history = tfdist.fit(
            model, x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, accumulate_steps=run.accumulate,
            **extras,
        )  # fmt: skip
        result = _result(model, history, tfdist.evaluate(model, x, y, batch_size=50, verbose=0))
        results.append(result | {"copies": _copies(strategy, [*model.variables, *model.optimizer.variables])})
    return results


def _copies(strategy, variables) -> list:
    """The values of every variable on each of this worker's devices."""
    return [[copy.numpy() for copy in strategy.experimental_local_results(v.value)] for v in variables]


def _result(model, history, logs) -> dict:
    return {"weights": model.get_weights(), "loss": history.history["loss"], "evaluation": logs}


def _model(run: Run):
    keras.utils.set_random_seed(1)
    regulariser = "l2" if run.variation == "regularisers" else None
    inputs = keras.Input((8,))
    hidden = keras.layers.Dense(16, "tanh", kernel_regularizer=regulariser)(inputs)
    # Before Keras 3.14 it sums over the rows of the batch, so that it depends on how a batch is cut.
    if run.variation == "regularisers" and keras.version() >= "3.14":
        hidden = keras.layers.ActivityRegularization(l2=0.01)(hidden)
    outputs = keras.layers.Dense(3, "softmax", name="label")(hidden)
    loss, metrics = "sparse_categorical_crossentropy", ["accuracy"]
    if run.variation == "two_outputs":
        outputs = {"label": outputs, "value": keras.layers.Dense(2, name="value")(hidden)}
        loss, metrics = {"label": loss, "value": "mse"}, {"label": metrics, "value": ["mae"]}
    model = keras.Model(inputs, outputs)
    weights = {"label": 1.0, "value": 0.3} if run.variation == "two_outputs" else None
    model.compile(_optimizer(run), loss, metrics=metrics, loss_weights=weights)
    return model


def _optimizer(run: Run):
    options = {
        "global_clipnorm": {"global_clipnorm": 0.5},
        "clipnorm": {"clipnorm": 0.2},
        "ema": {"use_ema": True, "ema_momentum": 0.9, "ema_overwrite_frequency": 5},
    }.get(run.variation, {})
    if run.optimizer == "sgd":
        return keras.optimizers.SGD(0.1, momentum=0.9, **options)
    if run.optimizer == "adam":
        return keras.optimizers.Adam(0.01, **options)
    return keras.optimizers.AdamW(0.01, weight_decay=0.05, **options)


def _data(run: Run):
    rng = np.random.default_rng(0)
    n = EXAMPLES[run.batches]
    x, labels = rng.normal(size=(n, 8)).astype("float32"), rng.integers(0, 3, n)
    if run.variation == "two_outputs":
        return x, {"label": labels, "value": rng.normal(size=(n, 2)).astype("float32")}
    return x, labels


def _extras(run: Run) -> dict:
    if run.variation == "sample_weights":
        return {"sample_weight": np.random.default_rng(1).uniform(0.2, 2.0, EXAMPLES[run.batches]).astype("float32")}
    return {"class_weight": {0: 0.5, 1: 2.0, 2: 1.3}} if run.variation == "class_weights" else {}
