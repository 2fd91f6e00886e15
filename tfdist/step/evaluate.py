"""The traced evaluate and predict steps of one replica."""

from tfdist.batching import Share
from tfdist.compat import seeds
from tfdist.step.custom import average_logs
from tfdist.step.forward import forward, keep_if_empty, loss_totals
from tfdist.step.parts import Rows, replica_batch
from tfdist.step.state import State
from tfdist.step.update import update


def make_evaluate_step(model, share: Share, seed_generator, *, may_be_empty: bool):
    """`(rows, worker_batch) -> None`: counts each real row of the batch once in the model's metrics."""
    variables = State.variables_of(model, seed_generator)

    def replica_step(rows: Rows, worker_batch):
        seeds.share_global_generator(seed_generator)
        batch = replica_batch(worker_batch, rows, share)
        before = variables.read()
        totals = loss_totals(model, variables, before, batch, training=False)
        part = batch.part()
        _, after = forward(model, variables, before, part, totals, training=False)
        if may_be_empty:
            after = keep_if_empty(part, variables, before, after)
        update(None, [], [], variables.changed(before, after))

    return replica_step


def make_custom_evaluate_step(model, share: Share, seed_generator):
    """For models that override `test_step`: its logs, averaged over the replicas by rows."""

    def replica_step(rows: Rows, worker_batch):
        seeds.share_global_generator(seed_generator)
        batch = replica_batch(worker_batch, rows, share)
        return average_logs(model.test_step(batch.data), batch.weight)

    return replica_step


def make_predict_step(model, share: Share, seed_generator):
    """`(rows, worker_batch) -> outputs` of `model.predict_step`, for one row if the replica has none."""

    def replica_step(rows: Rows, worker_batch):
        seeds.share_global_generator(seed_generator)
        return model.predict_step(replica_batch(worker_batch, rows, share).data)

    return replica_step
