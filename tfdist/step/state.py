"""A model's variables and their values while a step computes, as two parallel sets of lists."""

from typing import Any, NamedTuple

import tensorflow as tf

from tfdist.compat import trainer


class State(NamedTuple):
    """Either Keras variables or, in the same places, tensors with their values."""

    trainable: list
    other: list
    metrics: list

    @classmethod
    def variables_of(cls, model, seed_generator) -> "State":
        """The variables that a step of `model` may read and update."""
        return cls(
            list(model.trainable_variables), trainer.state_of(model, seed_generator), trainer.metrics_state_of(model)
        )

    def read(self) -> "State":
        """The values, on the replica or device that asks. On variables only."""
        return State(*([tf.convert_to_tensor(variable.value) for variable in kind] for kind in self))

    def pairs(self, values: "State") -> list[tuple[Any, Any]]:
        """`(variable, value)` for every variable."""
        return [pair for kind, of in zip(self, values) for pair in zip(kind, of)]

    def changed(self, before: "State", after: "State") -> list[tuple[Any, Any]]:
        """`(variable, new value)` of the variables that are not trained and that a pass updated."""
        return [
            (variable, new)
            for kind, old_values, new_values in zip(self[1:], before[1:], after[1:])
            for variable, old, new in zip(kind, old_values, new_values)
            if new is not old
        ]
