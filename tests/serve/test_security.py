"""Authentication, and the headers of every response."""

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
PROTECTED = ["/v1/models", "/v1/predict", "/v1/encode", "/v1/explain", "/metrics"]
PUBLIC = ["/healthz", "/", "/static/nothing.js", "/openapi.json", "/nothing"]


@pytest.fixture(scope="module")
def locked(pipelines):
    with closing(Client(create_app(pipelines, api_key=KEY))) as client:
        yield client


def check_headers(response, cache_control="no-store"):
    for name, value in HEADERS.items():
        assert response.headers.get_list(name) == [value]
    assert response.headers.get_list("cache-control") == [cache_control]


def test_every_response_has_security_headers(serving, monkeypatch):
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
    response = client.post("/v1/predict", {"texts": ["a"]})
    assert error_of(response, 500)
    check_headers(response)
    monkeypatch.setattr(client.service, "metrics", None)
    response = client.get("/metrics")
    assert error_of(response, 500)
    check_headers(response)


def test_responses_with_status_401_have_security_headers(locked):
    check_headers(locked.get("/v1/models"))


@pytest.mark.parametrize("path", PROTECTED)
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
def test_requests_without_the_key_are_rejected(locked, path, header):
    headers = {} if header is None else {b"authorization": header.encode("latin-1")}
    method = "GET" if path in ("/v1/models", "/metrics") else "POST"
    response = locked.request(method, path, headers=headers)
    error = error_of(response, 401)
    assert error["code"] in ("missing_api_key", "invalid_api_key")
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert KEY not in response.text


def test_two_keys_are_rejected(locked):
    headers = [("authorization", f"Bearer {KEY}"), ("authorization", "Bearer x")]
    assert locked.get("/v1/models", headers=headers).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_requests_with_the_key_may_have_any_host_and_origin(locked, scheme):
    headers = {"authorization": f"{scheme} {KEY}", "host": "models.example"}
    headers["origin"] = "https://app.example"
    for path in ("/v1/models", "/metrics"):
        assert locked.get(path, headers=headers).status_code == 200
    response = locked.post("/v1/predict", {"texts": ["a"]}, headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize("path", PUBLIC)
def test_public_paths_do_not_require_the_key(locked, path):
    response = locked.get(path, headers={"host": "models.example"})
    assert response.status_code in (200, 404)


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
def test_without_a_key_requests_to_localhost_are_accepted(client, host, port):
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
def test_without_a_key_requests_to_other_hosts_are_rejected(client, host, path):
    error = error_of(client.get(path, headers={"host": host}), 403)
    assert (error["code"], error["where"]) == ("host_not_allowed", "host")


def test_two_hosts_are_rejected(client):
    headers = [("host", "localhost"), ("host", "localhost")]
    assert client.get("/v1/models", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://localhost.evil.example",
        "http://127.0.0.1",  # not the same origin as localhost
        "http://localhost:3000",
        "null",
        "",
        "file://",
    ],
)
def test_without_a_key_requests_from_other_websites_are_rejected(client, origin):
    headers = {"origin": origin}
    error = error_of(client.post("/v1/predict", {"texts": []}, headers=headers), 403)
    assert (error["code"], error["where"]) == ("origin_not_allowed", "origin")
    assert client.get("/v1/models", headers=headers).status_code == 403
