"""Who is answered, and the headers that every answer has."""

import hmac
from contextlib import closing

import pytest
from perron_tests.clients import Client, error_of

from perron.serve import create_app

KEY = "correct-horse-battery-staple"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
GUARDED = ["/v1/models", "/v1/predict", "/v1/encode", "/v1/explain", "/metrics"]
OPEN = ["/healthz", "/", "/static/nothing.js", "/openapi.json", "/nothing"]


@pytest.fixture(scope="module")
def locked(pipelines):
    with closing(Client(create_app(pipelines, key=KEY))) as client:
        yield client


def check_headers(answer, cached="no-store"):
    for name, value in HEADERS.items():
        assert answer.headers.get_list(name) == [value]
    assert answer.headers.get_list("cache-control") == [cached]


def test_every_answer_has_the_headers(serving, monkeypatch):
    client = serving(max_texts=1, max_body=1000, max_queue=1)
    check_headers(client.get("/healthz"))
    check_headers(client.get("/v1/models"))
    check_headers(client.get("/metrics"))
    check_headers(client.get("/openapi.json"))
    check_headers(client.get("/nothing"))  # 404
    check_headers(client.get("/v1/predict"))  # 405
    check_headers(client.get("/"), "no-cache")
    check_headers(client.get("/static/nothing.js"), "no-cache")
    check_headers(client.post("/v1/predict", {"texts": ["a"]}))
    check_headers(client.post("/v1/predict", {"texts": ["a", "b"]}))  # 422
    check_headers(client.post("/v1/predict", {"texts": ["a" * 1000]}))  # 413
    check_headers(client.get("/healthz", headers={"host": "evil.example"}))  # 403
    monkeypatch.setattr(client.service, "find", None)
    answer = client.post("/v1/predict", {"texts": ["a"]})
    assert error_of(answer, 500)
    check_headers(answer)
    monkeypatch.setattr(client.service, "metrics", None)
    answer = client.get("/metrics")
    assert error_of(answer, 500)
    check_headers(answer)


def test_refusals_for_want_of_a_key_have_the_headers(locked):
    check_headers(locked.get("/v1/models"))


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        KEY,
        f"Basic {KEY}",
        "Bearer",
        "Bearer ",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY}x",
        f"Bearer {KEY.upper()}",
        "Bearer \xe4\xf6",
    ],
)
def test_without_the_right_key_there_is_no_answer(locked, path, header):
    headers = {} if header is None else {b"authorization": header.encode("latin-1")}
    method = "GET" if path in ("/v1/models", "/metrics") else "POST"
    answer = locked.ask(method, path, headers=headers)
    error = error_of(answer, 401)
    assert error["code"] in ("no_key", "wrong_key")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert KEY not in answer.text


def test_two_keys_are_no_key(locked):
    headers = [("authorization", f"Bearer {KEY}"), ("authorization", "Bearer x")]
    assert locked.get("/v1/models", headers=headers).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_with_the_key_there_is_from_any_host_and_origin(locked, scheme):
    headers = {"authorization": f"{scheme} {KEY}", "host": "models.example"}
    headers["origin"] = "https://app.example"
    for path in ("/v1/models", "/metrics"):
        assert locked.get(path, headers=headers).status_code == 200
    answer = locked.post("/v1/predict", {"texts": ["a"]}, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("path", OPEN)
def test_health_and_pages_need_no_key(locked, path):
    answer = locked.get(path, headers={"host": "models.example"})
    assert answer.status_code in (200, 404)


def test_the_key_is_compared_in_constant_time(locked, monkeypatch):
    compared = []
    monkeypatch.setattr(
        hmac,
        "compare_digest",
        lambda given, key: compared.append((given, key)) or True,
    )
    headers = {"authorization": "Bearer something"}
    assert locked.get("/v1/models", headers=headers).status_code == 200
    assert compared == [(b"something", KEY.encode())]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LocalHost"])
@pytest.mark.parametrize("port", ["", ":8000", ":80"])
def test_without_a_key_this_machine_is_answered(client, host, port):
    headers = {"host": host + port}
    assert client.get("/v1/models", headers=headers).status_code == 200
    for scheme in ("http", "https"):
        headers["origin"] = f"{scheme}://{host}{port}"
        assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "127.0.0.2",
        "localhost:8000:8000",
        "localhost:",
        "localhost:8000.evil.example",
        "user@localhost",
        "[::1",
        "0.0.0.0",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/v1/models", "/healthz", "/", "/metrics"])
def test_without_a_key_no_other_host_is_answered(client, host, path):
    error = error_of(client.get(path, headers={"host": host}), 403)
    assert (error["code"], error["where"]) == ("foreign_host", "host")


def test_two_hosts_are_no_host(client):
    headers = [("host", "localhost"), ("host", "localhost")]
    assert client.get("/v1/models", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://localhost.evil.example",
        "http://127.0.0.1",  # another origin than localhost
        "http://localhost:3000",
        "null",
        "",
        "file://",
    ],
)
def test_without_a_key_pages_of_other_sites_are_not_answered(client, origin):
    headers = {"origin": origin}
    error = error_of(client.post("/v1/predict", {"texts": []}, headers=headers), 403)
    assert (error["code"], error["where"]) == ("foreign_origin", "origin")
    assert client.get("/v1/models", headers=headers).status_code == 403
