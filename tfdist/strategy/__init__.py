"""`Cluster` and kind -> `tf.distribute.Strategy`, and a worker's place under a strategy."""

from tfdist.strategy.make import make_strategy
from tfdist.strategy.place import is_chief, share_of

__all__ = ["is_chief", "make_strategy", "share_of"]
