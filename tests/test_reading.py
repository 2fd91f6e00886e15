"""Real workers on the data: what they trained on, by their ledgers, and what they refuse to train on."""

import numpy as np
import pytest
import reading

from tfdist.ledger import read_report
from tfdist.testing import ClusterFailure, run_cluster

pytestmark = pytest.mark.process


def test_a_killed_training_that_goes_on_with_other_workers_has_seen_each_example_once(tmp_path):
    with pytest.raises(ClusterFailure):
        run_cluster(reading.train_recorded, 2, (str(tmp_path), 0, 3, 16))
    killed = read_report(tmp_path)
    assert next((epoch.once, epoch.over) for epoch in killed.epochs) == (103, True)
    assert not killed.epochs[1].over
    run_cluster(reading.train_recorded, 3, (str(tmp_path), 1, 3))
    report = read_report(tmp_path)
    assert report.exactly_once, str(report)
    assert [(epoch.epoch, epoch.steps, epoch.once) for epoch in report.epochs] == [
        (0, 11, 103),
        (1, 11, 103),
        (2, 11, 103),
    ]
    assert [len(epoch.workers) for epoch in report.epochs] == [2, 3, 3]


def test_data_that_differs_between_workers_is_refused_on_all_of_them():
    for rank, found in enumerate(run_cluster(reading.refusals, 2)):
        assert found.pop("steps") is None
        ends = found.pop("ends")
        assert "At step 10 of an epoch worker 0 has a batch of 3 rows, worker 1 has a batch of 10 rows" in ends
        for name, message in found.items():
            assert f"so do the workers [{rank}] of 2" in message, name
            assert "the same data and arguments" in message, name


def test_own_data_sets_are_trained_on_whole_and_evaluated_exactly(tmp_path):
    numbers = iter(range(1000))
    for file, count in enumerate((20, 21, 19)):
        (tmp_path / f"{file}.txt").write_text("".join(f"{next(numbers):03d}\n" for _ in range(count)))
    ledgers = tmp_path / "ledgers"
    first, second = run_cluster(reading.own_data, 2, (str(tmp_path), str(ledgers)))
    for own, found in enumerate((first, second)):
        differing = found.pop("differing")
        assert "first batches" in differing and f"so do the workers [{own}] of 2" in differing
    assert first == second
    for name, rows in {"files": 60, "function": 25, "once": 45, "generated": 45}.items():
        report = read_report(ledgers / name)
        assert report.exactly_once, str(report)
        assert {epoch.once for epoch in report.epochs} == {rows}, name
    assert first["steps"] == {"files": 14, "function": 6, "once": 5, "generated": 10}
    np.testing.assert_allclose(first["losses"]["files"], np.mean(np.arange(60.0) ** 2), rtol=1e-5)
    np.testing.assert_allclose(first["losses"]["function"], np.mean(np.arange(25.0) ** 2), rtol=1e-5)
    steps, loss, weights = first["holes"]
    assert steps == 3 and np.isfinite([loss, *np.ravel(weights)]).all()
    assert first["own step"] == 2
    assert "no order of the input" in first["predict"]
    assert "give each a seed" in first["unseeded"]
