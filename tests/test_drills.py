"""A training that is killed or preempted anywhere ends, once it is run again, as it would have undisturbed."""

import random
import signal

import drilled
import numpy as np
import pytest
from drilled import ALL, STEPS, Disturbance

from tfdist.checkpoint import Checkpoints
from tfdist.errors import PREEMPTED
from tfdist.ledger import read_report
from tfdist.ledger.book import read_book
from tfdist.testing import ClusterFailure, run_cluster

pytestmark = pytest.mark.process
KILL, TERM = signal.SIGKILL, signal.SIGTERM
SECONDS = 400


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """`workers -> (folder, what each of them came to)` of a training without checkpoints."""
    made = {}

    def run(workers):
        if workers not in made:
            folder = tmp_path_factory.mktemp(f"undisturbed-{workers}")
            made[workers] = folder, run_cluster(drilled.train, workers, (str(folder),), SECONDS)
        return made[workers]

    return run


def disturb(folder, workers, save_freq, disturbance, train=drilled.train):
    """Runs the training, which the disturbance ends. Returns what the workers came to if it came too late."""
    try:
        return run_cluster(train, workers, (str(folder), save_freq, disturbance), SECONDS)
    except ClusterFailure as failure:
        check_codes(failure, disturbance)
        return None


def check_codes(failure, disturbance):
    """Killed if that was the signal; otherwise preempted, all of them."""
    if disturbance.number == KILL:
        assert -KILL in [failure.exit_codes[worker] for worker in disturbance.hit(len(failure.exit_codes))], failure
    else:
        assert set(failure.exit_codes) == {PREEMPTED}, failure


def check_folder(folder, *, exists):
    """What is committed is whole; nothing else has the name of a checkpoint."""
    checkpoints = Checkpoints(folder / "checkpoints")
    steps = checkpoints.steps()
    assert bool(steps) or not exists
    assert [checkpoints.newest().step] == steps[:1] if steps else checkpoints.newest() is None


def drill(folder, workers, save_freq, disturbances):
    """Runs the training until it ends, with a disturbance each time; returns what the workers came to."""
    exists = False
    for disturbance in disturbances:
        if ended := disturb(folder, workers, save_freq, disturbance):
            return ended
        exists |= disturbance.number == TERM
        check_folder(folder, exists=exists)
    return run_cluster(drilled.train, workers, (str(folder), save_freq), SECONDS)


def check_same(folder, ended, undisturbed):
    """To the bit, on all workers; each example once an epoch; and one whole checkpoint, the end's."""
    for worker in ended:
        np.testing.assert_equal(worker, undisturbed[0])
    report = read_report(folder)
    assert report.exactly_once, report
    assert len(report.epochs) == len(undisturbed[0]["epochs"])
    assert Checkpoints(folder / "checkpoints").newest().step == STEPS * len(report.epochs)
    assert not list((folder / "checkpoints").glob(".partial-*"))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_undisturbed_training_stops_early_and_lowers_its_rate(undisturbed, workers):
    _, (first, *others) = undisturbed(workers)
    history = first["history"]
    assert STEPS < STEPS * len(history["loss"]) < STEPS * drilled.EPOCHS
    assert np.argmin(history["val_loss"]) < len(history["val_loss"]) - 1
    assert history["learning_rate"][-1] < history["learning_rate"][0]
    for other in others:
        np.testing.assert_equal(other, first)


CHAINS = {
    "killed": [
        Disturbance(KILL, "step", 8),
        Disturbance(KILL, "making", 2),  # the first one is committed then
        Disturbance(KILL, "restore"),
        Disturbance(KILL, "evaluation"),
        Disturbance(KILL, "writing", 1),
        Disturbance(KILL, "naming", 2),
    ],
    "preempted": [
        Disturbance(TERM, "epoch", 2),
        Disturbance(TERM, "evaluation", 1),
        Disturbance(TERM, "naming", 1),
        Disturbance(TERM, "step", 43),
    ],
    "of two, one and all": [
        Disturbance(KILL, "step", 13, 1),
        Disturbance(TERM, "evaluation", 0, 1),
        Disturbance(KILL, "restore", 0, 1),
        Disturbance(TERM, "step", 31, ALL),
        Disturbance(TERM, "step", 40, 0),
        Disturbance(KILL, "naming", 1),
    ],
}


@pytest.mark.parametrize(("workers", "chain"), [(1, "killed"), (1, "preempted"), (2, "of two, one and all")])
def test_disturbed_again_and_again(undisturbed, tmp_path, workers, chain):
    for number, disturbance in enumerate(CHAINS[chain]):
        assert disturb(tmp_path, workers, 5, disturbance) is None, f"{number}: {disturbance} did not end it"
        check_folder(tmp_path, exists=disturbance.number == TERM)
    ended = run_cluster(drilled.train, workers, (str(tmp_path), 5), SECONDS)
    check_same(tmp_path, ended, undisturbed(workers)[1])


def global_batches(folder):
    """The ids of each step of each epoch, in the order of their rows."""
    batches = {}
    records = [record for of_epoch in read_book(folder / "ledger").epochs.values() for record in of_epoch]
    for record in sorted(records, key=lambda record: record.worker):
        for step in range(record.first_step, record.stop):
            batch = batches.setdefault((record.frame.epoch, step), [])
            batch.extend(record.frame.between(step, step + 1).tolist())
    return batches


def test_two_workers_then_three_then_one_train_the_same_batches(tmp_path):
    """Without dropout and batch statistics, which depend on how a batch is divided."""
    alone, changing = tmp_path / "alone", tmp_path / "changing"
    [expected] = run_cluster(drilled.train_plainly, 1, (str(alone),), SECONDS)
    for workers, step in ((2, 17), (3, 40)):
        assert disturb(changing, workers, "epoch", Disturbance(TERM, "step", step), drilled.train_plainly) is None
    [ended] = run_cluster(drilled.train_plainly, 1, (str(changing), "epoch"), SECONDS)
    assert read_report(changing).exactly_once
    assert global_batches(changing) == global_batches(alone)
    for name, values in expected["history"].items():
        np.testing.assert_allclose(ended["history"][name], values, rtol=1e-4, err_msg=name)
    assert ended["epochs"] == expected["epochs"]


def draw(seed, workers):
    """How often to save, and two to three disturbances; later ones come later in the training."""
    rng = random.Random(seed)
    signals = [rng.choice([KILL, TERM]) for _ in range(rng.randint(2, 3))]
    return rng.choice(["epoch", 3, 5, 7]), [
        _draw(rng, number, workers, 14 * turn) for turn, number in enumerate(signals)
    ]


def _draw(rng, number, workers, first_step):
    places = ["step", "step", "evaluation", "epoch", "making", "writing", "naming"]
    place = rng.choice([*places, "restore"] if first_step else places)
    count = {
        "step": rng.randint(first_step + 1, first_step + 20),
        "evaluation": rng.randint(0, 4),
        "epoch": rng.randint(0, 30),
        "restore": 0,
    }.get(place, rng.randint(1, 3))
    by_chief = place in ("making", "writing", "naming")
    return Disturbance(number, place, count, 0 if by_chief else rng.choice([*range(workers), ALL]))


@pytest.mark.drill
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(30))
def test_drawn_disturbances(undisturbed, tmp_path, workers, seed):
    save_freq, disturbances = draw(seed, workers)
    ended = drill(tmp_path, workers, save_freq, disturbances)
    check_same(tmp_path, ended, undisturbed(workers)[1])
