"""The launcher runs as it is used: as a process, with a small Python program for a command. No TensorFlow."""

import errno
import json
import os
import pathlib
import pty
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from tfdist.launch.local import free_ports, local_clusters, worker_environ
from tfdist.launch.run import exit_code

ROOT = pathlib.Path(__file__).parents[1]
PRELUDE = """
import json, os, pathlib, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
def say(*words):
    print(*words, flush=True)
"""


def command_line(program, *flags):
    return [sys.executable, "-m", "tfdist.launch", *flags, "--", sys.executable, "-c", PRELUDE + program]


def launch(program, *flags, **environ):
    return subprocess.run(
        command_line(program, *flags),
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def start(program, *flags, **options):
    """The launcher in the background, once every worker has said "ready"."""
    launcher = subprocess.Popen(
        command_line(program, *flags),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    ready = 0
    while ready < int(flags[0].partition("=")[2]):
        ready += "ready" in launcher.stdout.readline()
    return launcher


def test_every_worker_gets_its_place_in_one_cluster():
    program = 'config = json.loads(os.environ["TF_CONFIG"]); say(json.dumps([task, config["cluster"]["worker"]]))'
    done = launch(program, "--workers=3")
    assert done.returncode == 0
    chief, addresses = json.loads(done.stdout)
    others = [json.loads(line.partition("] ")[2]) for line in done.stderr.splitlines()]
    assert (chief, sorted(others)) == (0, [[1, addresses], [2, addresses]])
    assert len(set(addresses)) == 3


def test_chief_is_untouched_and_the_others_lines_are_named():
    program = r'sys.stdout.write(f"{task}: 1/2\r{task}: 2/2\nend"); sys.stderr.write("" if task else "")'
    done = launch(program, "--workers=2")
    assert done.stdout == "0: 1/2\r0: 2/2\nend".replace("\r", "\n")  # text mode reads \r as a line end
    assert done.stderr.splitlines() == ["[worker 1] 1: 1/2", "1: 2/2", "[worker 1] end"]


def test_workdir_gets_a_log_of_every_worker(tmp_path):
    program = r'sys.stdout.write(f"from {task}\n"); sys.stderr.write("warned\n")'
    done = launch(program, "--workers=2", f"--workdir={tmp_path}")
    assert sorted(done.stdout.splitlines()) == ["from 0", "warned"]
    for task in range(2):
        log = (tmp_path / "logs" / f"worker-{task}.log").read_text()
        assert sorted(log.splitlines()) == [f"from {task}", "warned"]


def test_chief_has_a_terminal_if_the_launcher_has_one(tmp_path):
    reader, end = pty.openpty()
    program = "say(task, sys.stdout.isatty(), os.get_terminal_size().columns if sys.stdout.isatty() else None)"
    for flags in (["--workers=2"], ["--workers=2", f"--workdir={tmp_path}"]):
        subprocess.run(
            command_line(program, *flags), cwd=ROOT, stdout=end, stderr=subprocess.PIPE, check=True, timeout=60
        )
        assert os.read(reader, 1000).startswith(b"0 True")


@pytest.mark.parametrize("code", [64, 69, 75, 1])
def test_code_of_the_worker_that_fails_is_the_launchers_and_ends_the_others(code):
    program = f"sys.exit({code}) if task == 1 else time.sleep(1 if {code} == 75 else 600)"
    done = launch(program, "--workers=3", "--grace=5")
    assert done.returncode == code
    assert f"tfdist.launch: worker 1 ended with exit code {code}; the others were ended." in done.stderr


def test_worker_that_lost_a_peer_is_not_the_cause():
    done = launch("sys.exit(69) if task == 0 else (time.sleep(1), sys.exit(7))", "--workers=2")
    assert done.returncode == 7
    assert "worker 1 ended with exit code 7" in done.stderr


def test_worker_that_ignores_sigterm_is_killed_after_the_grace():
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1); sys.exit(1) if task else time.sleep(600)"
    done = launch(program, "--workers=2", "--grace=0.5")
    assert done.returncode == 1


def test_killed_worker_counts_as_a_lost_peer():
    done = launch("os.kill(os.getpid(), signal.SIGKILL) if task else time.sleep(600)", "--workers=2")
    assert done.returncode == 69
    assert "worker 1 ended with SIGKILL" in done.stderr
    assert [exit_code(-signal.SIGSEGV), exit_code(-signal.SIGKILL), exit_code(-signal.SIGTERM, [15])] == [1, 69, 143]


def test_sigterm_is_passed_on_and_the_workers_decide():
    program = 'signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); say("ready"); time.sleep(600)'
    launcher = start(program, "--workers=2")
    launcher.terminate()
    launcher.communicate(timeout=60)
    assert launcher.returncode == 75


def test_interrupt_is_passed_on():
    launcher = start('say("ready"); time.sleep(600)', "--workers=2")
    launcher.send_signal(signal.SIGINT)
    output, _ = launcher.communicate(timeout=60)
    assert launcher.returncode in (1, 130)  # Python may still get to say KeyboardInterrupt and then kills itself
    assert "KeyboardInterrupt" in output


COUNT = """
got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: got.append(signal.Signals(number).name))
say("ready")
while not got:
    time.sleep(0.01)
time.sleep(1)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signal_to_the_whole_group_comes_to_every_worker_once(signum):
    launcher = start(COUNT + 'say("got", *got); sys.exit(75)', "--workers=2", start_new_session=True)
    os.killpg(launcher.pid, signum)
    time.sleep(0.1)
    launcher.send_signal(signum)
    output, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 75
    assert re.findall("got (.*)", output) == [signum.name] * 2


@pytest.mark.parametrize("codes", [[75, 69], [69, 75], [0, 75], [75, 0]])
def test_preempted_counts_for_more_than_a_peer_that_was_lost(codes):
    done = launch(f"time.sleep(task); sys.exit({codes}[task])", "--workers=2")
    assert done.returncode == 75


def test_save_is_not_ended_by_a_second_signal_when_another_worker_fails():
    launcher = start(COUNT + 'sys.exit(1) if task else (time.sleep(1), say("saved after", *got))', "--workers=2")
    launcher.terminate()
    output, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 1
    assert "saved after SIGTERM\n" in output


def test_workers_that_listen_leave_with_code_75():
    program = """
from tfdist.preemption import Listener
with Listener() as listener:
    say("ready")
    while not listener.notice:
        time.sleep(0.01)
time.sleep(task)
sys.exit(75)
"""
    launcher = start(program, "--workers=3")
    launcher.terminate()
    launcher.communicate(timeout=60)
    assert launcher.returncode == 75


def test_workers_die_with_a_launcher_that_is_killed(tmp_path):
    program = f'pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch(); say("ready"); time.sleep(600)'
    launcher = start(program, "--workers=2")
    launcher.kill()
    launcher.communicate(timeout=60)
    pids = [int(file.name) for file in tmp_path.iterdir()]
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(pathlib.Path(f"/proc/{pid}/cmdline").exists() and _runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid):
    return "Z" not in pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--", "true"], "required: --workers"),
        (["--workers=0", "--", "true"], "'0' is not a number of workers"),
        (["--workers=2"], "required: command"),
        (["--workers=2", "--", "no-such-program"], "'no-such-program' is not found"),
        (["--workers=1", "--workdir=/proc/none", "--", "true"], "--workdir=/proc/none: "),
    ],
)
def test_wrong_flags_are_refused_with_code_64(flags, message):
    line = [sys.executable, "-m", "tfdist.launch", *flags]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    assert message in done.stderr


def test_workers_share_cores_and_gpus_unless_told():
    clusters = local_clusters(2)
    cores = len(os.sched_getaffinity(0))
    environs = [worker_environ(cluster, {}, gpus=5) for cluster in clusters]
    assert [environ["CUDA_VISIBLE_DEVICES"] for environ in environs] == ["0,1", "2,3"]
    assert environs[0]["TF_NUM_INTRAOP_THREADS"] == environs[0]["OMP_NUM_THREADS"] == str(max(1, cores // 2))
    assert worker_environ(clusters[1], {}, gpus=1)["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in worker_environ(clusters[0], {})
    told = {"OMP_NUM_THREADS": "9", "CUDA_VISIBLE_DEVICES": "3"}
    assert told.items() <= worker_environ(clusters[0], told, gpus=2).items()


def test_free_ports_differ_and_stay_below_the_kernels_own():
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32768


FIND_DATA_WORKER = """
if not task:
    say(os.environ["TFDIST_DATA_SERVICE"], os.environ["TFDIST_DATA_WORKERS"])
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        command = (folder / "cmdline").read_bytes().split(b"\\0") if folder.exists() else []
        ours = command and (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(os.getppid())
        if ours and b"--role=worker" in command:
            os.kill(int(folder.name), signal.SIGKILL)
            break
time.sleep(60)
"""


def test_lost_data_worker_fails_the_job():
    done = launch(FIND_DATA_WORKER, "--workers=2", "--data_workers=2", "--grace=1")
    assert done.returncode == 69
    assert re.fullmatch(r"grpc://127.0.0.1:\d+ 2\n", done.stdout)
    assert re.search(r"tfdist.launch: data worker \d ended with SIGKILL; the others were ended", done.stderr)


def test_servers_end_with_the_workers():
    program = """
address = os.environ["TFDIST_DATA_SERVICE"].removeprefix("grpc://")
host, port = address.split(":")
while socket.socket().connect_ex((host, int(port))):
    time.sleep(0.1)
say(address)
"""
    done = launch("import socket" + program, "--workers=1", "--data_workers=1")
    assert done.returncode == 0
    port = int(done.stdout.rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
