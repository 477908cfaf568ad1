"""`perron serve` as a process: sockets, signals, and what it says."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from perron_tests.errors import mentions
from perron_tests.pipelines import small_pipeline

from perron.errors import PerronError, SettingsError
from perron.serve.app import KEY, address_of, check_key, is_loopback, listen

SECRET = "unspeakable"
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"


class Server:
    """A process that serves, and what it has said."""

    def __init__(self, folder, log, *options):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        environment.pop(KEY, None)
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "perron", "serve", folder, "--port=0", *options],
                stdout=output,
                stderr=output,
                env=environment,
            )
        while not (found := re.search(r"at http://127.0.0.1:(\d+)\n", self.said())):
            assert self.process.poll() is None, self.said()
            time.sleep(0.05)
        self.port = int(found[1])

    def said(self):
        return self.log.read_text()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, method, path, body=None, **headers):
        connection = self.connect()
        headers = {"Content-Type": "application/json"} | headers
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, content

    def send(self, raw):
        """Send bytes; return all that comes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as wire:
            wire.sendall(raw)
            answer = b""
            while piece := wire.recv(65536):
                answer += piece
        return answer

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    small_pipeline("text").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def server(folder, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "log.txt"
    server = Server(folder, log, "--max-body=100000", "--max-words=100")
    yield server
    server.process.kill()
    server.process.wait()


def texts(*words):
    return json.dumps({"texts": words}).encode()


def test_it_says_what_it_serves_and_where_and_answers_there(server):
    address = f"http://127.0.0.1:{server.port}"
    assert server.said().startswith(f"serving tiny at {address}\n")
    status, content = server.ask("POST", "/v1/predict", texts("good"))
    assert status == 200
    assert len(json.loads(content)["predictions"]) == 1
    limits = json.loads(server.ask("GET", "/v1/models")[1])["limits"]
    assert (limits["max_body"], limits["max_words"]) == (100_000, 100)


def test_texts_are_not_in_the_log(server):
    status, _ = server.ask("POST", "/v1/predict", texts(SECRET))
    assert status == 200
    assert server.ask("POST", "/v1/explain", texts(SECRET))[0] == 200
    assert server.ask("POST", "/v1/predict", texts(*[SECRET] * 999))[0] == 422
    assert server.ask("POST", "/v1/predict", SECRET.encode())[0] == 422
    assert server.ask("GET", f"/{SECRET}?text={SECRET}")[0] == 404
    assert server.ask("POST", f"/v1/predict?{SECRET}", texts("a"))[0] == 200
    server.send(f"{SECRET} / HTTP/1.1\r\n\r\n".encode())
    with socket.create_connection(("127.0.0.1", server.port)) as wire:  # and leaves
        wire.sendall(HEAD + b"\r\nContent-Length: 999\r\n\r\n" + SECRET.encode())
    assert server.ask("GET", "/healthz")[0] == 200
    assert SECRET not in server.said()


@pytest.mark.parametrize(
    "raw", [b"what?\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
)
def test_what_is_no_http_is_answered_like_everything_else(server, raw):
    head, _, body = server.send(raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-security-policy: default-src 'none'" in head
    assert json.loads(body)["error"]["code"] == "no_http"


def test_a_chunked_body_is_cut_off_when_it_is_too_large(server):
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    head = HEAD + b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    answer = server.send(head + 2 * chunk + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"body_too_large" in answer


def test_a_client_that_sends_all_at_once_is_told_that_it_is_too_much(server):
    status, content = server.ask("POST", "/v1/predict", b" " * 10**7)
    assert status == 413
    assert b"body_too_large" in content


def test_paths_with_dots_reach_nothing(server):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"):
        status, content = server.ask("GET", path)
        assert status == 404
        assert b"create_app" not in content


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_finishes_what_is_under_way(folder, tmp_path, number):
    server = Server(folder, tmp_path / "log.txt", "--batch-wait=1")
    busy, idle = server.connect(), server.connect()
    headers = {"Content-Type": "application/json"}
    idle.request("GET", "/healthz")
    assert idle.getresponse().read() == b'{"status": "ok"}'
    busy.request("POST", "/v1/predict", texts("good"), headers)  # for a second
    while b"\nperron_queue_texts 1.0\n" not in server.ask("GET", "/metrics")[1]:
        time.sleep(0.01)
    server.process.send_signal(number)
    for connection in (idle, server.connect()):
        try:
            connection.request("POST", "/v1/predict", texts("good"), headers)
            assert connection.getresponse().status == 503
        except OSError:
            pass  # refused, or closed
    answer = busy.getresponse()
    assert answer.status == 200
    assert len(json.loads(answer.read())["predictions"]) == 1
    assert server.process.wait(30) == 0
    assert server.said().count("\n") == 1  # where it served, and nothing more


@pytest.mark.parametrize(
    ("host", "want"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.0.2.1", False),
    ],
)
def test_loopback_is_known(host, want):
    assert is_loopback(host) == want


def test_a_key_is_needed_to_be_reached_from_elsewhere():
    check_key("127.0.0.1", None)
    check_key("0.0.0.0", "key")
    with pytest.raises(SettingsError, match="PERRON_API_KEY"):
        check_key("0.0.0.0", None)


@pytest.mark.parametrize("key", ["two words", "schlüssel", "line\n", " "])
def test_a_key_that_no_header_can_hold_is_refused(key):
    with pytest.raises(SettingsError, match="PERRON_API_KEY"):
        check_key("127.0.0.1", key)


def test_a_port_that_is_taken_is_told():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert address_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(PerronError, match=mentions(f"port {port}", "127.0.0.1")):
            listen("127.0.0.1", port)


def test_a_host_that_is_not_there_is_told():
    with pytest.raises(SettingsError, match=mentions("--host nowhere.invalid")):
        listen("nowhere.invalid", 0)
    with pytest.raises(PerronError, match=mentions("192.0.2.1")):
        listen("192.0.2.1", 0)
