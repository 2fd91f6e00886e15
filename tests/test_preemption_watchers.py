"""Watchers look at real files and ask a real HTTP server that answers as the clouds document it."""

import contextlib
import http.server
import json
import threading
import time

import pytest

from tfdist.errors import ConfigError
from tfdist.launch.local import free_ports
from tfdist.preemption import AwsMetadata, FileAppears, GceMetadata, Listener, StopWatching, read_watcher

PREEMPTED = "/computeMetadata/v1/instance/preempted"
ACTION = "/latest/meta-data/spot/instance-action"
NOTICE = json.dumps({"action": "terminate", "time": "2026-05-01T08:22:00Z"})


class Cloud:
    """A metadata server. `answers` maps a path to (status, text); `tokens` are those that it takes."""

    def __init__(self):
        self.answers = {PREEMPTED: (200, "FALSE")}
        self.tokens = []
        self.asked = []

    def answer(self, method, path, headers):
        self.asked.append((method, path))
        if method == "PUT" and path == "/latest/api/token" and headers["X-aws-ec2-metadata-token-ttl-seconds"]:
            self.tokens = [f"token-{len(self.asked)}"]
            return 200, self.tokens[0]
        if path == ACTION and headers["X-aws-ec2-metadata-token"] not in self.tokens:
            return 401, ""
        if path == PREEMPTED and headers["Metadata-Flavor"] != "Google":
            return 403, ""
        return self.answers.get(path, (404, ""))


def wait_for(caplog, text):
    """Until a thread has logged it."""
    for _ in range(3000):
        if text in caplog.text:
            return
        time.sleep(0.01)
    raise AssertionError(f"{text!r} was not logged, but {caplog.text!r}")


@contextlib.contextmanager
def serving(cloud, port=0):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, text = cloud.answer(self.command, self.path, self.headers)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET  # noqa: N815  the name that http.server asks for

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def notice_of(listener):
    deadline = time.monotonic() + 30
    while not listener.notice:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return listener.notice.reason


@pytest.fixture(autouse=True)
def dead_proxy(monkeypatch):
    """The machine's own addresses are not asked by way of a proxy."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)


def test_file_is_noticed_when_it_appears(tmp_path):
    watcher = read_watcher(f"file:{tmp_path}/go")
    assert watcher.look() is None
    with Listener([watcher], poll_seconds=0.01) as listener:
        (tmp_path / "go").touch()
        assert notice_of(listener) == f"The file {tmp_path}/go is there (remove it before the next run)"


def test_watchers_work_outside_of_the_main_thread(tmp_path):
    (tmp_path / "go").touch()
    found = []

    def train():
        with Listener([FileAppears(tmp_path / "go")]) as listener:
            found.append(notice_of(listener))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert len(found) == 1


def test_gce_preempts():
    cloud = Cloud()
    with serving(cloud) as address:
        watcher = GceMetadata(address)
        assert watcher.look() is None
        cloud.answers[PREEMPTED] = 200, "TRUE\n"
        assert watcher.look() == "GCE preempts this machine"


def test_ec2_announces_with_a_token_that_is_renewed():
    cloud = Cloud()
    with serving(cloud) as address:
        watcher = AwsMetadata(address)
        assert [watcher.look(), watcher.look()] == [None, None]
        assert [method for method, _ in cloud.asked] == ["PUT", "GET", "GET"]
        cloud.tokens.clear()
        cloud.answers[ACTION] = 200, NOTICE
        assert watcher.look() == "EC2 announces: terminate at 2026-05-01T08:22:00Z"


@pytest.mark.parametrize("make", [GceMetadata, AwsMetadata])
def test_absent_server_is_told_once_and_asked_no_more(make, caplog):
    address = f"http://127.0.0.1:{free_ports(1)[0]}/"
    watcher = make(address)
    assert [watcher.look(), watcher.look()] == [None, None]
    with pytest.raises(StopWatching, match="is no metadata server of .* refused.* Take this watcher out"):
        watcher.look()
    with Listener([watcher], poll_seconds=0.01) as listener:
        wait_for(caplog, "is no metadata server")
        time.sleep(0.1)
        assert caplog.text.count("is no metadata server") == 1
        assert listener.notice is None


@pytest.mark.parametrize("make", [GceMetadata, AwsMetadata])
def test_server_that_has_answered_may_be_away_for_a_while(make):
    cloud = Cloud()
    with serving(cloud) as address:
        watcher = make(address)
        assert watcher.look() is None
    assert [watcher.look() for _ in range(5)] == [None] * 5
    cloud.answers |= {PREEMPTED: (200, "TRUE"), ACTION: (200, NOTICE)}
    with serving(cloud, port=int(address.rpartition(":")[2])):
        assert watcher.look()


@pytest.mark.parametrize("text", ["", "<html>log in here</html>", "[]", "{}", "\0"])
def test_other_servers_answers_are_no_notice(text):
    cloud = Cloud()
    cloud.answers |= {PREEMPTED: (200, text), ACTION: (200, text)}
    with serving(cloud) as address:
        for watcher in (GceMetadata(address), AwsMetadata(address)):
            assert watcher.look() is None


def test_watcher_that_fails_is_named_and_the_others_go_on(tmp_path, caplog):
    class Broken:
        def look(self):
            raise RuntimeError("no such thing")

    (tmp_path / "go").touch()
    with Listener([Broken(), FileAppears(tmp_path / "go")]) as listener:
        assert notice_of(listener)
        wait_for(caplog, "no such thing")
    assert "Broken" in caplog.text


def test_clouds_are_read_by_name():
    assert read_watcher("gce").address == "http://metadata.google.internal"
    assert read_watcher("aws").address == "http://169.254.169.254"


@pytest.mark.parametrize("text", ["", "file:", "azure", "gce:1", "/tmp/go", None, 3, ["gce"]])
def test_what_is_no_watcher_is_refused(text):
    with pytest.raises(ConfigError, match="is no watcher; they are"):
        read_watcher(text)
