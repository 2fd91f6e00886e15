"""Preemption beside TensorFlow's server, which takes SIGTERM for itself when it starts."""

import os
import signal
import time

import pytest

import tfdist
from tfdist.preemption import Listener, leaving_when_told
from tfdist.testing import ClusterFailure, run_cluster

pytestmark = pytest.mark.process


def hear_sigterm():
    with leaving_when_told():
        tfdist.make_strategy("multiworker")
        with Listener() as listener:
            os.kill(os.getpid(), signal.SIGTERM)
            while not listener.notice:
                time.sleep(0.01)
            return listener.notice.reason


def leave_at_start():
    with leaving_when_told():
        tfdist.make_strategy("multiworker")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)


def test_listener_hears_sigterm_beside_tensorflows_server():
    assert run_cluster(hear_sigterm) == ["SIGTERM", "SIGTERM"]


def test_process_leaves_at_once_beside_tensorflows_server():
    with pytest.raises(ClusterFailure) as caught:
        run_cluster(leave_at_start)
    assert set(caught.value.exit_codes) <= {75, 69} and 75 in caught.value.exit_codes
    assert "SIGTERM: there is nothing to save" in "".join(caught.value.outputs)
