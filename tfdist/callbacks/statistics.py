"""Batch statistics that are each replica's own."""

import keras
import numpy as np

from tfdist.compat import trainer
from tfdist.snapshot.replicas import copies_of


class ReplicaStatistics(keras.callbacks.Callback):
    """Has a checkpoint hold what layers have counted on each replica.

    Under MirroredStrategy Keras's own `fit` lets each replica keep its own moving averages, with which it evaluates; a
    checkpoint has those of the first one.
    """

    def __init__(self, model):
        super().__init__()
        self.set_model(model)
        self._stored: list[list[np.ndarray]] = []

    def get_state(self):
        return [[copy.numpy() for copy in of] for of in self._copies()]

    def set_state(self, state):
        self._stored = state

    def put_back(self) -> None:
        """Assigns what was set, if there are as many replicas now, once all other variables are put back."""
        for copies, values in zip(self._copies(), self._stored):
            if [copy.shape for copy in copies] == [value.shape for value in values]:
                for copy, value in zip(copies, values):
                    copy.assign(value)

    def _copies(self) -> list[tuple]:
        return [copies_of(self.model.distribute_strategy, variable) for variable in trainer.statistics_of(self.model)]
