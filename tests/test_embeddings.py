"""The gradient of an embedding whose ids repeat: an exception to what stock Keras gives, stated in the README."""

import keras
import numpy as np

import tfdist

IDS = np.random.default_rng(0).integers(0, 5, (40, 1))
TARGETS = np.random.default_rng(1).normal(size=(40, 1)).astype("float32")
TABLE = np.random.default_rng(2).normal(size=(5, 3)).astype("float32")


def model(*table):
    made = keras.Sequential([keras.Input((1,), dtype="int32"), *table, keras.layers.Flatten(), keras.layers.Dense(1)])
    made.layers[-1].set_weights([np.ones((3, 1), "float32"), np.zeros(1, "float32")])
    made.compile(keras.optimizers.Adam(0.05), "mse")
    return made


def test_repeated_ids_train_as_the_dense_product_that_an_embedding_stands_for():
    embedded = model(keras.layers.Embedding(5, 3))
    one_hot = keras.layers.Lambda(lambda ids: keras.ops.one_hot(ids, 5), output_shape=(1, 5))
    dense = model(one_hot, keras.layers.Dense(3, use_bias=False))
    embedded.layers[0].set_weights([TABLE])
    dense.layers[1].set_weights([TABLE])
    tfdist.fit(embedded, IDS, TARGETS, batch_size=10, epochs=3, shuffle=False, verbose=0)
    dense.fit(IDS, TARGETS, batch_size=10, epochs=3, shuffle=False, verbose=0)
    np.testing.assert_allclose(embedded.layers[0].get_weights()[0], dense.layers[1].get_weights()[0], rtol=1e-4)
