"""`perron serve` as a process: sockets, signals and logs."""

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
from perron.serve.app import (
    API_KEY_VARIABLE,
    check_api_key,
    is_loopback,
    listen,
    server_url,
)

SECRET = "unspeakable"
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"


class Server:
    """A process that runs `perron serve`, with its log."""

    def __init__(self, folder, log, *options):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        environment.pop(API_KEY_VARIABLE, None)
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "perron", "serve", folder, "--port=0", *options],
                stdout=output,
                stderr=output,
                env=environment,
            )
        while not (match := re.search(r"at http://127.0.0.1:(\d+)\n", self.output())):
            assert self.process.poll() is None, self.output()
            time.sleep(0.05)
        self.port = int(match[1])

    def output(self):
        return self.log.read_text()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def request(self, method, path, body=None, **headers):
        connection = self.connect()
        headers = {"Content-Type": "application/json"} | headers
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content

    def send(self, raw):
        """Send bytes, and return the response until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as sock:
            sock.sendall(raw)
            response = b""
            while chunk := sock.recv(65536):
                response += chunk
        return response

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


def body_of(*texts):
    return json.dumps({"texts": texts}).encode()


def test_the_server_prints_its_models_and_url(server):
    url = f"http://127.0.0.1:{server.port}"
    assert server.output().startswith(f"serving tiny at {url}\n")
    status, content = server.request("POST", "/v1/predict", body_of("good"))
    assert status == 200
    assert len(json.loads(content)["predictions"]) == 1
    limits = json.loads(server.request("GET", "/v1/models")[1])["limits"]
    assert (limits["max_body"], limits["max_words"]) == (100_000, 100)


def test_texts_are_not_logged(server):
    status, _ = server.request("POST", "/v1/predict", body_of(SECRET))
    assert status == 200
    assert server.request("POST", "/v1/explain", body_of(SECRET))[0] == 200
    assert server.request("POST", "/v1/predict", body_of(*[SECRET] * 999))[0] == 422
    assert server.request("POST", "/v1/predict", SECRET.encode())[0] == 422
    assert server.request("GET", f"/{SECRET}?text={SECRET}")[0] == 404
    assert server.request("POST", f"/v1/predict?{SECRET}", body_of("a"))[0] == 200
    server.send(f"{SECRET} / HTTP/1.1\r\n\r\n".encode())
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        # Disconnects before the end of the body.
        sock.sendall(HEAD + b"\r\nContent-Length: 999\r\n\r\n" + SECRET.encode())
    assert server.request("GET", "/healthz")[0] == 200
    assert SECRET not in server.output()


@pytest.mark.parametrize(
    "raw", [b"what?\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
)
def test_invalid_http_is_an_error_in_the_same_format(server, raw):
    head, _, body = server.send(raw).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-security-policy: default-src 'none'" in head
    assert json.loads(body)["error"]["code"] == "bad_request"


def test_a_chunked_body_that_is_too_large_is_rejected(server):
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    head = HEAD + b"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    response = server.send(head + 2 * chunk + b"0\r\n\r\n")
    assert response.startswith(b"HTTP/1.1 413 ")
    assert b"body_too_large" in response


def test_a_client_receives_the_error_for_a_large_body(server):
    status, content = server.request("POST", "/v1/predict", b" " * 10**7)
    assert status == 413
    assert b"body_too_large" in content


def test_paths_with_dots_do_not_leave_the_folder(server):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"):
        status, content = server.request("GET", path)
        assert status == 404
        assert b"create_app" not in content


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_finishes_requests_in_progress(folder, tmp_path, number):
    server = Server(folder, tmp_path / "log.txt", "--batch-wait=1")
    busy, idle = server.connect(), server.connect()
    headers = {"Content-Type": "application/json"}
    idle.request("GET", "/healthz")
    assert idle.getresponse().read() == b'{"status": "ok"}'
    busy.request("POST", "/v1/predict", body_of("good"), headers)  # for a second
    while b"\nperron_queue_texts 1.0\n" not in server.request("GET", "/metrics")[1]:
        time.sleep(0.01)
    server.process.send_signal(number)
    for connection in (idle, server.connect()):
        try:
            connection.request("POST", "/v1/predict", body_of("good"), headers)
            assert connection.getresponse().status == 503
        except OSError:
            pass  # refused, or closed
    response = busy.getresponse()
    assert response.status == 200
    assert len(json.loads(response.read())["predictions"]) == 1
    assert server.process.wait(30) == 0
    assert server.output().count("\n") == 1  # the URL


@pytest.mark.parametrize(
    ("host", "expected"),
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
def test_loopback_hosts_are_recognized(host, expected):
    assert is_loopback(host) == expected


def test_hosts_other_than_loopback_require_a_key():
    check_api_key("127.0.0.1", None)
    check_api_key("0.0.0.0", "key")
    with pytest.raises(SettingsError, match="PERRON_API_KEY"):
        check_api_key("0.0.0.0", None)


@pytest.mark.parametrize("key", ["two words", "schlüssel", "line\n", " "])
def test_a_key_that_is_not_valid_in_a_header_is_an_error(key):
    with pytest.raises(SettingsError, match="PERRON_API_KEY"):
        check_api_key("127.0.0.1", key)


def test_a_port_in_use_is_an_error():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert server_url(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(PerronError, match=mentions(f"port {port}", "127.0.0.1")):
            listen("127.0.0.1", port)


def test_an_unknown_host_is_an_error():
    with pytest.raises(SettingsError, match=mentions("--host nowhere.invalid")):
        listen("nowhere.invalid", 0)
    with pytest.raises(PerronError, match=mentions("192.0.2.1")):
        listen("192.0.2.1", 0)
