"""The script of before.py made multi-worker; `diff before.py after.py` shows the few lines.

python -m tfdist.launch --workers=2 -- python examples/before_after/after.py

Takes 8 seconds on two cores and ends with the same accuracy. tfdist draws its own order of examples, which no number of
workers changes; with shuffle=False in both scripts the weights are equal too.
Under Slurm, Kubernetes, MPI or TF_CONFIG start it as it is, once for each worker.
"""

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tfdist

tfdist.enable_model_fit()
strategy = tfdist.make_strategy()


def build():
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


images, labels = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
x, x_held_out, y, y_held_out = train_test_split(images, labels, test_size=360, stratify=labels, random_state=0)

keras.utils.set_random_seed(0)
with strategy.scope():
    model = build()

model.fit(x, y, batch_size=32, epochs=10)
loss, accuracy = model.evaluate(x_held_out, y_held_out, batch_size=32)
print(f"Held-out accuracy {accuracy:.4f}, loss {loss:.4f}")
