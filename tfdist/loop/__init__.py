"""`fit`, `evaluate` and `predict` for synchronous strategies, with Keras's arguments."""

from tfdist.loop.evaluate import evaluate
from tfdist.loop.fit import fit
from tfdist.loop.model_methods import enable_model_fit
from tfdist.loop.predict import predict

__all__ = ["enable_model_fit", "evaluate", "fit", "predict"]
