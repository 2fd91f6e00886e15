"""The topologies that the process tests run on, by name."""

import tensorflow as tf

import tfdist

WORKERS = {"single": 1, "mirrored": 1, "multiworker2": 2, "multiworker3": 3}


def make(topology: str) -> tf.distribute.Strategy:
    """The strategy of `topology` in this process; "mirrored" has two logical CPUs."""
    if topology == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tfdist.make_strategy(topology.rstrip("23"))
