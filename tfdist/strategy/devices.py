"""The devices that this process trains on. But for `logical_devices`, nothing here starts TensorFlow's context."""

import tensorflow as tf

from tfdist.compat.context import context_is_initialized


def count_devices() -> tuple[int, str]:
    """How many logical devices this process trains on, and their type: its GPUs, "CPU" where it has none.

    One CPU counts as one device whatever its cores, for TensorFlow splits each operation over them; where more
    logical CPUs are configured they count, as a stand-in for several devices.
    """
    kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    physical = tf.config.list_physical_devices(kind)
    return sum(len(tf.config.get_logical_device_configuration(device) or [None]) for device in physical), kind


def count_worker_devices() -> tuple[int, str]:
    """The same for a worker of several: MultiWorkerMirroredStrategy trains on the GPUs, or on the first CPU alone."""
    count, kind = count_devices()
    return (count, kind) if kind == "GPU" else (1, kind)


def logical_devices() -> list[str]:
    """The names of these devices. Starts TensorFlow's context."""
    return [device.name for device in tf.config.list_logical_devices(count_devices()[1])]


def grow_gpu_memory():
    """Lets each GPU's memory be taken as it is needed, so that other processes can use the same GPU.

    Left alone are GPUs whose logical devices the user configured, and a context that runs already.
    """
    if context_is_initialized():
        return
    for device in tf.config.list_physical_devices("GPU"):
        if not tf.config.get_logical_device_configuration(device):
            tf.config.experimental.set_memory_growth(device, True)
