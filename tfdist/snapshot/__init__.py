"""What a checkpoint holds of a training: values taken from a model and its surroundings, and put back."""

from tfdist.snapshot.training import Snapshot, put_training, take_training

__all__ = ["Snapshot", "put_training", "take_training"]
