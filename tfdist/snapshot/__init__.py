"""What a checkpoint holds of a training: values taken from a model and its surroundings, and put back."""

from tfdist.snapshot.exchange import newest_on_all
from tfdist.snapshot.held import held
from tfdist.snapshot.training import Snapshot, put_training, put_values, take_training

__all__ = ["Snapshot", "held", "newest_on_all", "put_training", "put_values", "take_training"]
