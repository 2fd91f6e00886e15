from tfdist.testing import run_cluster


def shares():
    import tensorflow as tf

    from tfdist.strategy import is_chief, make_strategy, share_of

    strategy = make_strategy()
    total = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0)))
    return share_of(strategy), is_chief(strategy), float(total)


def test_two_workers_share_a_batch_and_reduce():
    from tfdist.batching import Share

    assert run_cluster(shares) == [(Share(0, 2, 1), True, 2.0), (Share(1, 2, 1), False, 2.0)]


def test_local_is_one_share():
    from tfdist.batching import Share

    assert run_cluster(shares, env={"TF_CONFIG": None}, workers=1) == [(Share(0, 1, 1), True, 1.0)]
