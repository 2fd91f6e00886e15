"""`fit`, `evaluate` and `predict` for synchronous strategies, with Keras's arguments."""

from tfdist.loop.evaluate import evaluate
from tfdist.loop.fit import fit
from tfdist.loop.predict import predict

__all__ = ["evaluate", "fit", "predict"]
