"""What `fit`, `evaluate` and `predict` do beside training to the right weights, on real workers."""

import csv

import behaviours
import keras
import numpy as np
import pytest
import strategies

from tfdist.testing import run_cluster

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", params=strategies.WORKERS)
def ran(request, tmp_path_factory):
    """`(topology, each worker's results, folder)`."""
    folder = tmp_path_factory.mktemp("run")
    topology = request.param
    return topology, run_cluster(behaviours.all_of, strategies.WORKERS[topology], (topology, str(folder)), 400), folder


def agree(workers, key):
    """The first worker's result, after a check that the others have the same."""
    first = workers[0][key]
    for other in workers[1:]:
        np.testing.assert_equal(other[key], first)
    return first


def test_dropout_differs_by_replica_and_step_and_is_repeatable(ran):
    topology, workers, _ = ran
    first, again, accumulated = agree(workers, "kept_by_dropout")
    assert first == again
    assert first[0] != first[1]
    replicas = {"single": 1, "mirrored": 2}.get(topology, len(workers))
    for kept, parts in [(first[0], replicas), (first[1], replicas), (accumulated[0], 4 * replicas)]:
        pieces = [tuple(piece[:5]) for piece in np.array_split(kept, parts)]
        assert 20 <= sum(kept) <= 44
        assert len(set(pieces)) > 1 or parts == 1


def test_batch_statistics_are_equal_on_all_workers(ran):
    _, workers, _ = ran
    agree(workers, "batch_statistics")


def test_evaluation_counts_each_example_once(ran):
    _, workers, _ = ran
    found = agree(workers, "evaluation")
    x, y = behaviours.data(1797)
    plain = behaviours.model(strategies.tf.distribute.get_strategy())
    plain.set_weights(found["weights"])
    assert found["logs"]["examples"] == 1797
    expected = plain.evaluate(x, y, verbose=0, return_dict=True)
    assert found["logs"]["accuracy"] == found["logs"]["again"] == pytest.approx(expected["accuracy"], abs=1e-7)
    assert found["logs"]["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    np.testing.assert_allclose(found["outputs"], plain.predict(x, verbose=0), rtol=1e-4, atol=1e-6)


def test_stop_decided_on_one_worker_stops_all_at_the_same_step(ran):
    _, workers, _ = ran
    found = agree(workers, "stop_decided_by_last_worker")
    assert found == {"iterations": 5, "epochs": [0], "batches": [0, 1, 2, 3, 4]}


def test_stock_callbacks_write_on_the_chief_and_act_everywhere(ran):
    _, workers, folder = ran
    found = agree(workers, "stock_callbacks")
    history = found["history"]
    epochs = len(history["loss"])
    assert epochs == 4
    assert history["learning_rate"] == pytest.approx([0.1, 0.1, 0.05, 0.025])
    assert found["calls"] == [(batch, ["accuracy", "loss"]) for batch in range(12)] * epochs
    with open(folder / "log.csv") as lines:
        assert [row["epoch"] for row in csv.DictReader(lines)] == ["0", "1", "2", "3"]
    assert len(list(folder.glob("at-*.weights.h5"))) == 48 // 7
    assert list(folder.glob("tensorboard/*/events*"))
    best = keras.saving.load_model(folder / "best.keras")
    x, y = behaviours.data(50)
    assert best.evaluate(x, y, verbose=0)[0] == pytest.approx(min(history["val_loss"]), rel=1e-5)
    assert found["evaluation"]["loss"] == pytest.approx(history["val_loss"][0], rel=1e-5)


def test_not_a_number_stops_everyone(ran):
    _, workers, _ = ran
    epochs, iterations = agree(workers, "not_a_number")
    assert epochs == [0]
    assert iterations <= 3


def test_arguments_of_fit_mean_what_they_mean_in_keras(ran):
    _, workers, _ = ran
    found = agree(workers, "arguments_of_fit")
    steps = {name: steps for name, (_, steps) in found.items()}
    assert steps.pop("compiled_again") == 12
    assert steps == {"split": 9, "frequency": 45, "initial_epoch": 57, "steps_per_epoch": 67, "endless": 72}
    assert len(found["frequency"][0]["val_loss"]) == 1
    assert "val_accuracy" in found["split"][0]
    assert sorted(found["compiled_again"][0]) == ["loss", "mae"]


def test_epochs_of_unknown_size_are_shuffled_anew(ran):
    _, workers, _ = ran
    first_losses = agree(workers, "orders_of_unknown_size")
    assert len(set(first_losses)) == 3


def test_no_example_counts_twice_where_more_steps_are_asked_for(ran):
    _, workers, _ = ran
    assert agree(workers, "more_steps_than_data") == (50, (50, 2), [50], [28])


def test_a_stop_takes_effect_after_a_step_as_in_keras(ran):
    _, workers, _ = ran
    assert agree(workers, "stopped_before_it_began") == 1


def test_unseeded_models_start_alike_on_all_workers(ran):
    _, workers, _ = ran
    agree(workers, "unseeded_weights")


def test_model_methods_give_what_keras_gives(ran):
    _, workers, _ = ran
    found = agree(workers, "model_fit")
    keras.utils.set_random_seed(1)
    plain = behaviours.model(strategies.tf.distribute.get_strategy())
    x, y = behaviours.data(103)
    history = plain.fit(x, y, batch_size=10, epochs=2, verbose=0, shuffle=False)
    assert found["history"]["loss"] == pytest.approx(history.history["loss"], rel=1e-4)
    assert found["values"] == pytest.approx(plain.evaluate(x, y, verbose=0), rel=1e-4)
    assert found["logs"]["accuracy"] == found["values"][1]
    np.testing.assert_allclose(found["outputs"], plain.predict(x, verbose=0), atol=1e-4)
