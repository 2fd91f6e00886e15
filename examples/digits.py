"""The 1,797 optical digits that scikit-learn ships (8x8 grey values), and a small convolutional network."""

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tfdist


class Digits:
    """Ten classes; 360 of the 1,797 examples are held out, the same share of each class."""

    def __init__(self, width: int):
        self.width = width
        x, y = load_digits(return_X_y=True)
        x = (x / 16.0).astype("float32").reshape(-1, 8, 8, 1)
        self.x, self.x_held_out, self.y, self.y_held_out = train_test_split(
            x, y.astype("int32"), test_size=360, stratify=y, random_state=0
        )

    def train_data(self, seed):
        return tfdist.data.from_arrays(self.x, self.y, shuffle=True, seed=seed)

    def eval_data(self):
        return tfdist.data.from_arrays(self.x_held_out, self.y_held_out)

    def make_model(self):
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Input((8, 8, 1)),
                layers.Conv2D(self.width, 3, padding="same", activation="relu"),
                layers.Conv2D(2 * self.width, 3, strides=2, padding="same", activation="relu"),
                layers.Flatten(),
                layers.Dense(10, dtype="float32"),
            ]
        )

    def objective(self):
        return {
            "loss": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            "metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        }


def make_task(width: int = 32) -> Digits:
    return Digits(width)
