"""A small convolutional network for Fashion-MNIST, trained on 60,000 images and tested on 10,000."""

import keras
import tensorflow as tf

import tfdist
from tfdist.errors import DataError


class FashionMNIST:
    """Reads what `examples.fashion_mnist.prepare` has made; each worker decodes its own images alone."""

    def __init__(self, width: int, data_dir: str | None):
        self.width, self.data_dir = width, data_dir

    def train_data(self, seed):
        return self._read("train", shuffle=True, seed=seed)

    def eval_data(self):
        return self._read("test")

    def make_model(self):
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Input((28, 28, 1)),
                layers.Conv2D(self.width, 5, strides=2, padding="same", activation="relu"),
                layers.Conv2D(2 * self.width, 3, strides=2, padding="same", activation="relu"),
                layers.Flatten(),
                layers.Dense(4 * self.width, activation="relu"),
                layers.Dense(10, dtype="float32"),
            ]
        )

    def objective(self):
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        }

    def _read(self, split, **order):
        try:
            data = tfdist.data.from_tfds("fashion_mnist", split=split, data_dir=self.data_dir, **order)
        except DataError as error:
            raise DataError(f"{error} Without a network: python -m examples.fashion_mnist.prepare") from error
        return data.map(_normalized)


def _normalized(image, label):
    return tf.cast(image, tf.float32) / 255.0, label


def make_task(width: int = 32, data_dir: str | None = None) -> FashionMNIST:
    """`width`: channels of the first convolution; `data_dir`: where TFDS keeps its data sets, None for its default."""
    return FashionMNIST(width, data_dir)
