"""A variable's copies on the replicas of this worker, which are read and assigned without the other workers."""

from tfdist.step.update import MIRRORING


def copies_of(strategy, variable) -> tuple:
    """The variable's own copy on each device of this worker; one copy where all replicas share it."""
    return strategy.experimental_local_results(variable.value)


def local_replicas(strategy) -> range:
    """The replicas of this worker, counted from 0."""
    return range(len(strategy.extended.worker_devices) if isinstance(strategy, MIRRORING) else 1)
