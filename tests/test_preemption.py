"""Real processes get real signals. No TensorFlow; the main thread is stuck in a call of C where it matters."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from tfdist.errors import PREEMPTED, ConfigError
from tfdist.preemption import SIGNALS, Listener, leaving_when_told

ROOT = pathlib.Path(__file__).parents[1]
PRELUDE = """
import ctypes, logging, os, signal, sys, threading, time
from tfdist.preemption import Listener, leaving_when_told
logging.basicConfig()
def say(*words):
    print(*words, flush=True)
def stuck():
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):  # a mutex locked twice: neither a signal nor time ends this call
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
def until_told(listener):
    while not listener.notice:
        time.sleep(0.01)
    return listener.notice.reason
"""


def start(program):
    """A process that has said "ready"."""
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    hear(process, "ready")
    return process


def hear(process, words):
    while words not in (line := process.stdout.readline()):
        assert line, f"ended without {words!r}"


def end_of(process):
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("signum", SIGNALS)
def test_signal_sets_the_flag_and_says_what_happens(signum):
    process = start('with Listener() as listener: say("ready"); say("got", until_told(listener)); time.sleep(0.2)')
    process.send_signal(signum)
    code, output = end_of(process)
    assert code == 0
    assert f"got {signum.name}" in output
    assert output.count(f"{signum.name}: this machine goes away") == 1


def test_flag_is_set_while_the_main_thread_is_in_a_call():
    program = """
listener = Listener()
threading.Thread(target=lambda: (say(until_told(listener)), os._exit(3))).start()
with listener:
    say("ready")
    stuck()
"""
    process = start(program)
    process.terminate()
    code, output = end_of(process)
    assert (code, "SIGTERM" in output) == (3, True)


@pytest.mark.parametrize("signum", SIGNALS)
def test_second_signal_ends_the_process_at_once(signum):
    process = start('with Listener(): say("ready"); stuck()')
    process.send_signal(signum)
    hear(process, "goes away")
    time.sleep(1.1)
    process.send_signal(signum)
    code, output = end_of(process)
    assert code == 128 + signum
    assert "a second signal" in output


def test_signal_that_is_delivered_twice_is_one():
    process = start('with Listener() as listener: say("ready"); until_told(listener); time.sleep(0.5); say("here")')
    process.terminate()
    process.terminate()
    assert end_of(process)[0] == 0


def test_sigterm_after_the_announcement_of_slurm_is_no_second_signal():
    process = start('with Listener() as listener: say("ready"); input(); time.sleep(0.3); say(until_told(listener))')
    process.send_signal(signal.SIGUSR1)
    hear(process, "goes away")
    time.sleep(1.1)
    process.terminate()
    process.stdin.write("go on\n")
    code, output = end_of(process)
    assert (code, "SIGUSR1" in output) == (0, True)


def test_deadline_says_what_was_not_reached_and_leaves_with_code_75():
    process = start('with Listener(grace=0.5, on_deadline=lambda: say("nothing saved")): say("ready"); stuck()')
    process.terminate()
    code, output = end_of(process)
    assert code == PREEMPTED
    assert "has not come to its end" in output and "nothing saved" in output


@pytest.mark.parametrize("word", ["stuck()", "1 / 0"])
def test_word_that_hangs_or_fails_does_not_keep_the_process(word):
    process = start(f'with Listener(grace=0.5, on_deadline=lambda: {word}): say("ready"); stuck()')
    process.terminate()
    assert end_of(process)[0] == PREEMPTED


def test_log_whose_lock_is_held_keeps_neither_flag_nor_second_signal():
    program = """
listener = Listener()
threading.Thread(target=lambda: (until_told(listener), say("told"))).start()
with listener:
    logging._lock.acquire(); logging.root.handlers[0].acquire()
    say("ready"); stuck()
"""
    process = start(program)
    process.terminate()
    hear(process, "told")
    time.sleep(1.1)
    process.terminate()
    assert end_of(process)[0] == 128 + signal.SIGTERM


def test_no_deadline_once_the_listener_is_left():
    process = start(
        'with Listener(grace=0.3) as listener: say("ready"); until_told(listener)\ntime.sleep(1); say("on")'
    )
    process.terminate()
    code, output = end_of(process)
    assert (code, "on\n" in output) == (0, True)


def test_handlers_and_descriptor_are_left_as_they_were():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Listener() as listener:
        during = [signal.getsignal(number) for number in SIGNALS]
        assert listener.notice is None
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert not set(during) & set(before)
    assert signal.set_wakeup_fd(-1) == -1


def test_innermost_hears_and_the_outer_one_does_again_after_it():
    with Listener() as outer:
        with Listener() as inner:
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: inner.notice)
        assert outer.notice is None
        os.kill(os.getpid(), signal.SIGUSR1)
        wait_until(lambda: outer.notice)
    assert (inner.notice.reason, outer.notice.reason) == ("SIGTERM", "SIGUSR1")


def test_notice_is_forgotten_when_it_is_entered_again():
    listener = Listener()
    with listener:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: listener.notice)
    assert listener.notice.time <= time.time()
    with listener:
        assert listener.notice is None


def test_handler_that_is_set_meanwhile_is_kept():
    before = signal.getsignal(signal.SIGUSR1)
    try:
        with Listener():
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_the_process_ignores_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Listener() as listener:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            wait_until(lambda: listener.notice)
        assert listener.notice.reason == "SIGTERM"
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_signals_of_others_reach_their_event_loop():
    heard = []

    async def train():
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, heard.append, "SIGUSR2")
        with Listener() as listener:
            os.kill(os.getpid(), signal.SIGUSR2)
        await asyncio.wait_for(_until(heard), 30)
        return listener.notice

    assert asyncio.run(train()) is None
    assert heard == ["SIGUSR2"]


async def _until(heard):
    while not heard:
        await asyncio.sleep(0.01)


def test_forked_child_can_be_terminated_and_its_parent_hears_nothing():
    program = """
with Listener() as listener:
    child = os.fork()
    if not child:
        time.sleep(30)
        os._exit(1)
    os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    time.sleep(0.2)
    say("ready", os.waitstatus_to_exitcode(status), listener.notice)
"""
    process = subprocess.run(
        [sys.executable, "-c", PRELUDE + program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert process.stdout == "ready -15 None\n"


def test_other_threads_leave_signals_alone(caplog):
    found = []

    def train():
        with Listener():
            found.extend(signal.getsignal(number) for number in SIGNALS)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(number) for number in SIGNALS]
    assert "Not in the main thread" in caplog.text


@pytest.mark.parametrize("signum", SIGNALS)
def test_process_leaves_at_once_where_nothing_is_to_be_saved(signum):
    process = start('with leaving_when_told(): say("ready"); stuck()')
    process.send_signal(signum)
    code, output = end_of(process)
    assert code == PREEMPTED
    assert f"{signum.name}: there is nothing to save" in output


def test_listener_inside_of_the_door_hears_in_its_place():
    with leaving_when_told(), Listener() as listener:
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: listener.notice)
    assert listener.notice.reason == "SIGTERM"


@pytest.mark.parametrize("wrong", [{"grace": 0}, {"grace": float("nan")}, {"poll_seconds": -1}])
def test_times_that_are_none_are_refused(wrong):
    with pytest.raises(ConfigError, match="above 0"):
        Listener(**wrong)
