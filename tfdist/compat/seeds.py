"""Random layers that draw different numbers on each replica, as a function of (seed, calls, replica).

The state of a Keras `SeedGenerator` is mirrored, so that stock Keras draws the same dropout mask on every replica.
Replica 0 keeps what one device draws; the others shift the seed, not the counter, which counts calls everywhere.

Private names: `SeedGenerator.next` is public, but there is no hook to fold a replica into it;
`global_seed_generator` and the thread-local attribute that holds it, since a replica runs in a thread of its own and
would make another generator.
"""

import contextlib

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from tfdist.compat.patching import patched

# An odd constant above every 32-bit seed: no two (seed, replica) pairs of 31-bit seeds meet.
_REPLICA_STRIDE = 2_654_435_761


@contextlib.contextmanager
def seeds_by_replica(strategy):
    """While it lasts (the tracing of a step), seeds drawn in replica `r` differ from those of the other replicas."""
    if strategy.num_replicas_in_sync == 1:
        yield
        return
    stock_next = seed_generator.SeedGenerator.next

    def next_in_replica(self, ordered=True):
        seed = stock_next(self, ordered)
        context = tf.distribute.get_replica_context()
        if context is None:
            return seed
        replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
        return seed + tf.stack([replica * _REPLICA_STRIDE, tf.zeros_like(replica)])

    with patched([(seed_generator.SeedGenerator, "next", next_in_replica)]):
        yield


def global_generator() -> keras.random.SeedGenerator:
    """The generator behind `seed=None`; made on first use, so call it inside the strategy's scope."""
    return seed_generator.global_seed_generator()


def share_global_generator(generator):
    """Makes `generator` the one behind `seed=None` in the calling thread."""
    global_state.set_global_attribute("global_seed_generator", generator)
