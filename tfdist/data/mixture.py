"""Several sources as one: all of their examples, or a mixture in stated proportions."""

import dataclasses
import functools
import itertools
import math
import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfdist.data.indexed import Indexed, indexed
from tfdist.data.order import InOrder, Order
from tfdist.data.specs import packed_as, tensors_of
from tfdist.errors import DataError

_FINEST = 10_000
"""Places of a mixture's pattern: proportions hold to one in that many."""


def concatenate(parts: Sequence[Indexed], *, shuffle=False, seed=0) -> Indexed:
    """All examples of several data sets, each once an epoch.

    Args:
        parts: data sets with random access, in their own order, with elements of one structure, dtype and shape.
        shuffle: another order over all of them in each epoch, drawn from `seed`; else one part after the other.
        seed: an integer in [0, 2**63).

    Raises:
        DataError: a part without random access, one that is shuffled by itself, or elements that differ.
    """
    parts = _checked(parts, "concatenate")
    shuffled = [i for i, part in enumerate(parts) if not isinstance(part.order, InOrder)]
    if shuffled:
        raise DataError(
            f"concatenate: part {shuffled[0]} has an order of its own ({parts[shuffled[0]].order.identity()}), which "
            "would be lost. Leave it in order there, and say concatenate(..., shuffle=True, seed=...)."
        )
    return indexed(Parts(parts), shuffle, seed)


def mix(parts: Sequence[Indexed], weights: Sequence[float], *, examples: int | None = None) -> Indexed:
    """Examples of several data sets in the proportions of `weights`.

    The parts take turns in a fixed pattern that spreads each as evenly as can be, so that every batch has its share
    of each part within one row or two. Each part goes through its own examples, in its own order, one pass after the
    other over all epochs of the mixture: no example comes again before all of its part have come.

    Args:
        parts: data sets with random access, with elements of one structure, dtype and shape.
        weights: one positive number per part; their proportions hold to 1 in 10,000.
        examples: length of an epoch; by default that of all parts together.

    Raises:
        DataError: a part without random access, wrong weights or length, or elements that differ.
    """
    parts = _checked(parts, "mix")
    counts = _slots(weights, len(parts))
    if examples is not None and (isinstance(examples, bool) or not isinstance(examples, int) or examples < 1):
        raise DataError(f"mix(examples={examples!r}): the length of an epoch is an integer of 1 or above.")
    total = sum(part.examples for part in parts) if examples is None else examples
    return Indexed(Parts(parts), Mixed(total, tuple(part.order for part in parts), counts, _starts(parts)))


@dataclasses.dataclass(frozen=True, eq=False)
class Parts:
    """The source of all examples of several data sets: those of the first, then those of the second, and so on."""

    parts: tuple[Indexed, ...]

    @property
    def examples(self) -> int:
        return sum(part.source.examples for part in self.parts)

    @functools.cached_property
    def spec(self):
        specs = [part.element_spec for part in self.parts]
        for i, spec in enumerate(specs[1:], 1):
            if not _compatible(specs[0], spec):
                raise DataError(
                    f"Part {i} has elements {spec}, part 0 {specs[0]}: structure, dtypes and shapes must be the same. "
                    "Bring them to one form with `.map(fn)`."
                )
        return specs[0]

    def identity(self) -> str:
        return ", ".join(part.source.identity() for part in self.parts)

    def read(self, indices):
        """Reads each part's examples at once, and puts them where they belong."""
        starts = tf.constant(_starts(self.parts), tf.int64)
        part_of = tf.searchsorted(starts, indices, side="right") - 1
        places = [tf.where(part_of == i)[:, 0] for i in range(len(self.parts))]
        batches = [
            _read_some(part, tf.gather(indices, at) - start)
            for part, at, start in zip(self.parts, places, tf.unstack(starts))
        ]
        back = tf.argsort(tf.concat(places, 0))
        leaves = [tf.gather(tf.concat(each, 0), back) for each in zip(*map(tensors_of, batches))]
        return packed_as(self.spec, leaves)


@dataclasses.dataclass(frozen=True)
class Mixed:
    """The order of a mixture: `slots[i]` of every `sum(slots)` positions belong to part i, as even as can be.

    The pattern goes on over the epochs: with position p of the whole training, part and count of earlier turns of the
    part follow from a table, and the example from the part's own order.
    """

    examples: int
    orders: tuple[Order, ...]
    slots: tuple[int, ...]
    starts: tuple[int, ...]
    is_permutation = False

    def indices(self, positions, epoch):
        turn = tf.cast(epoch, tf.int64) * self.examples + positions
        block, place = turn // sum(self.slots), turn % sum(self.slots)
        parts, turns_before = _pattern(self.slots)
        part = tf.gather(tf.constant(parts, tf.int64), place)
        before = tf.gather(tf.constant(turns_before, tf.int64), place)
        drawn = block * tf.gather(tf.constant(self.slots, tf.int64), part) + before
        found = tf.zeros_like(positions)
        for i, (order, start) in enumerate(zip(self.orders, self.starts)):
            index = start + order.indices(drawn % order.examples, drawn // order.examples)
            found = tf.where(part == i, index, found)
        return found

    def identity(self) -> str:
        return f"mixed {self.slots} of " + ", ".join(f"{o.examples} {o.identity()}" for o in self.orders)


def _pattern(slots) -> tuple[np.ndarray, np.ndarray]:
    """The part of each place of a block, and how many places before it are the part's: turn j of n at (j + 1/2) / n."""
    parts = np.repeat(np.arange(len(slots)), slots)
    turns = np.concatenate([np.arange(count) for count in slots])
    by_time = np.argsort((turns + 0.5) / np.asarray(slots)[parts], kind="stable")
    return parts[by_time], turns[by_time]


def _slots(weights, parts: int) -> tuple[int, ...]:
    """Whole numbers in the ratio of the weights, with the smallest sum that shows it exactly, or to 1 in 10,000."""
    if len(weights) != parts or not all(isinstance(w, numbers.Real) and 0 < float(w) < math.inf for w in weights):
        raise DataError(
            f"mix(weights={list(weights)}) for {parts} parts: each part has one weight, a number above 0. Leave out a "
            "part that shall not be seen."
        )
    shares = np.asarray(weights, float) / max(weights)
    shares /= shares.sum()
    if shares.min() * _FINEST < 1:
        raise DataError(
            f"mix(weights={list(weights)}): a part has less than 1 in {_FINEST:,} of the examples, and "
            "proportions hold to that. Give it more, or leave it out."
        )
    for total in itertools.chain(range(1, 101), (1_000, _FINEST)):
        slots = np.rint(shares * total)
        if np.allclose(slots / total, shares, rtol=1e-9) and slots.all():
            break
    slots = slots.astype(int)
    return tuple(int(count) for count in slots // np.gcd.reduce(slots))


def _starts(parts) -> tuple[int, ...]:
    return (0, *itertools.accumulate(part.source.examples for part in parts[:-1]))


def _read_some(part: Indexed, indices):
    """The part's batch at `indices`, which may be empty: then one example is read for its form alone."""
    count = tf.size(indices)
    batch = part.read(tf.cond(count > 0, lambda: indices, lambda: tf.zeros([1], tf.int64)))
    return packed_as(batch, [leaf[:count] for leaf in tensors_of(batch)])


def _compatible(left, right) -> bool:
    try:
        tf.nest.assert_same_structure(left, right)
    except (TypeError, ValueError):
        return False
    pairs = list(zip(tf.nest.flatten(left), tf.nest.flatten(right)))
    if any((a is None) != (b is None) for a, b in pairs):
        return False
    return all(a is None or (a.dtype == b.dtype and a.shape.is_compatible_with(b.shape)) for a, b in pairs)


def _checked(parts, name: str) -> tuple[Indexed, ...]:
    wrong = [type(part).__name__ for part in parts if not isinstance(part, Indexed)]
    if wrong or not parts:
        raise DataError(
            f"{name} of {wrong[0] if wrong else 'nothing'}: it takes data sets with random access, from from_arrays, "
            "from_tfds or from_tfrecords. Mix a tf.data.Dataset with tf.data.Dataset.sample_from_datasets and a seed."
        )
    return tuple(parts)
