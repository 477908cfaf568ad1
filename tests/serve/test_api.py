"""The API returns the results of the pipeline, and errors in a common format."""

import asyncio
import json

import numpy as np
import pytest
import torch
from perron_tests.clients import error_of
from perron_tests.errors import assert_mentions
from perron_tests.pipelines import OTHERS, TEXTS

import perron
from perron import Pipeline

KINDS = ["text", "pair", "document"]


def find_pipeline(pipelines, name):
    return next(pipeline for pipeline in pipelines if pipeline.name == name)


def make_request(name, texts=TEXTS, pairs=OTHERS):
    pairs = {"pairs": pairs} if name == "pair" else {}
    return {"model": name, "texts": texts, **pairs}


@pytest.mark.parametrize("name", KINDS)
def test_predictions_are_those_of_the_pipeline(client, pipelines, name):
    response = client.post("/v1/predict", make_request(name))
    assert response.status_code == 200
    pipeline = find_pipeline(pipelines, name)
    expected = pipeline.predict_proba(TEXTS, OTHERS if name == "pair" else None)
    content = response.json()
    assert content["model"] == name
    probabilities = [row["probabilities"] for row in content["predictions"]]
    np.testing.assert_allclose(
        [list(row.values()) for row in probabilities], expected, rtol=1e-5
    )
    assert all(tuple(row) == pipeline.labels for row in probabilities)
    labels = [pipeline.labels[row] for row in expected.argmax(1)]
    assert [row["label"] for row in content["predictions"]] == labels


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_those_of_the_pipeline(client, pipelines, name):
    response = client.post("/v1/encode", {"model": name, "texts": TEXTS})
    expected = find_pipeline(pipelines, name).encode(TEXTS)
    np.testing.assert_allclose(response.json()["vectors"], expected, atol=1e-6)


@pytest.mark.parametrize("name", [*KINDS, "text-mean"])
def test_records_are_those_of_the_pipeline(client, pipelines, name):
    response = client.post("/v1/explain", make_request(name))
    pairs = OTHERS if name == "pair" else [None] * len(TEXTS)
    pipeline = find_pipeline(pipelines, name)
    expected = [
        json.loads(pipeline.explain(text, pair).to_json())
        for text, pair in zip(TEXTS, pairs, strict=True)
    ]
    assert response.json() == {"model": name, "records": expected}


@pytest.mark.parametrize("path", ["predict", "encode", "explain"])
@pytest.mark.parametrize("name", KINDS)
def test_a_single_text_is_equivalent_to_a_list_of_one(client, path, name):
    single = {"model": name, "text": TEXTS[0]}
    several = {"model": name, "texts": TEXTS[:1]}
    if name == "pair" and path != "encode":
        single["pair"], several["pairs"] = OTHERS[0], OTHERS[:1]
    response = client.post(f"/v1/{path}", single)
    assert response.status_code == 200
    assert response.json() == client.post(f"/v1/{path}", several).json()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"model": "pair", "text": "a"}, "missing_pairs"),
        ({"model": "pair", "text": "a", "pair": None}, "missing_pairs"),
        ({"model": "text", "text": "a", "pair": "b"}, "unexpected_pairs"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/predict", "/v1/explain"])
def test_a_single_pair_requires_a_model_for_pairs(client, path, request_, code):
    error = error_of(client.post(path, request_), 422)
    assert (error["code"], error["where"]) == (code, "pair")


def test_the_first_model_is_the_default(client):
    for model in ({}, {"model": None}):
        response = client.post("/v1/predict", {"texts": ["good"], **model})
        assert response.json()["model"] == "text"


@pytest.mark.parametrize("path", ["predict", "encode", "explain"])
def test_an_empty_list_of_texts_has_empty_results(client, path):
    model, results = client.post(f"/v1/{path}", {"texts": []}).json().values()
    assert (model, results) == ("text", [])


def test_models_are_listed_with_the_limits(client, serving):
    content = client.get("/v1/models").json()
    assert [model["name"] for model in content["models"]] == [*KINDS, "text-mean"]
    assert content["models"][2] == {
        "name": "document",
        "kind": "document",
        "encoder": "bilstm",
        "aggregator": "centrality",
        "labels": ["bad", "fair", "good"],
        "max_words": 10,
        "max_sentences": 4,
    }
    assert content["version"] == perron.__version__
    assert serving(max_texts=7).get("/v1/models").json()["limits"]["max_texts"] == 7


def test_concurrent_requests_are_batched(serving, pipelines):
    client = serving(batch_wait=0.05)
    requests = [{"texts": [text, text + " it"]} for text in TEXTS]
    responses = client.post_concurrently("/v1/predict", requests)
    for request, response in zip(requests, responses, strict=True):
        probabilities = [
            list(prediction["probabilities"].values())
            for prediction in response.json()["predictions"]
        ]
        expected = pipelines[0].predict_proba(request["texts"])
        np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    metrics = client.get("/metrics").text.splitlines()
    assert "perron_batch_texts_count 1.0" in metrics
    assert f"perron_batch_texts_sum {2.0 * len(requests)}" in metrics


def test_metrics_count_requests_texts_and_time(serving):
    client = serving()
    client.post("/v1/predict", {"texts": ["a", "b"]})
    client.post("/v1/encode", {"texts": ["a"], "model": "document"})
    client.post("/v1/predict", "{")
    for path in ("/v1/nothing", "/odd/one", "/static/nothing.js", "/openapi.json", "/"):
        client.get(path)
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    for line in (
        'perron_requests_total{path="/v1/predict",status="200"} 1.0',
        'perron_requests_total{path="/v1/predict",status="422"} 1.0',
        'perron_requests_total{path="other",status="404"} 2.0',
        'perron_requests_total{path="/openapi.json",status="200"} 1.0',
        'perron_requests_total{path="/",status="200"} 1.0',
        'perron_requests_total{path="/static/*",status="404"} 1.0',
        'perron_texts_total{model="text",operation="predict"} 2.0',
        'perron_texts_total{model="document",operation="encode"} 1.0',
        'perron_request_seconds_count{path="/v1/predict"} 2.0',
        "perron_queue_texts 0.0",
    ):
        assert line in response.text.splitlines()


def test_a_stopping_server_is_not_healthy_and_rejects_requests(serving):
    client = serving()
    assert client.get("/healthz").json() == {"status": "ok"}
    client.service.stopping = True
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (503, {"status": "stopping"})
    response = client.post("/v1/predict", {"texts": ["a"]})
    assert error_of(response, 503)["code"] == "stopping"
    assert response.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("content", "code", "where"),
    [
        ("", "invalid_json", None),
        ('{"texts": ["a"]', "invalid_json", None),
        ("\ufeff{}", "invalid_json", None),
        (b'{"texts": ["\xff"]}', "invalid_json", None),
        (r'{"texts": ["a", "\ud800"]}', "invalid_json", None),
        (r'{"texts": ["\udc00\ud800 a"]}', "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ("null", "invalid_type", None),
        ('"texts"', "invalid_type", None),
        ("{}", "missing_field", "texts"),
        ('{"texts": "a"}', "invalid_type", "texts"),
        ('{"texts": ["a", 1]}', "invalid_type", "texts.1"),
        ('{"texts": [NaN]}', "invalid_type", "texts.0"),
        ('{"texts": ["a"], "model": 1}', "invalid_type", "model"),
        ('{"texts": null}', "invalid_type", "texts"),
        ('{"texts": ["a"], "text": "b"}', "conflicting_fields", "texts"),
        ('{"texts": ["a"], "pair": "b"}', "conflicting_fields", "texts"),
        ('{"text": ["a"]}', "invalid_type", "text"),
        ('{"text": null}', "invalid_type", "text"),
        ('{"pair": "b"}', "missing_field", "text"),
        ('{"pairs": ["b"]}', "missing_field", "texts"),
        ('{"text": "a", "pairs": ["b"]}', "unknown_field", "pairs"),
        ('{"txt": "a"}', "unknown_field", "txt"),  # not the missing field
        ('{"texts": ["a"], "' + 200 * "x" + '": 0}', "unknown_field", "x" * 100),
    ],
)
def test_an_invalid_body_is_an_error(client, content, code, where):
    error = error_of(client.post("/v1/predict", content), 422)
    assert (error["code"], error["where"]) == (code, where)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("null", "The body must be a JSON object."),
        ('{"texts": "a"}', "texts must be a list."),
        ('{"texts": ["a", 1]}', "texts.1 must be a string."),
        ('{"pair": "b"}', "text is missing."),
        ("{}", "texts is missing. Send a list as texts, or a string as text."),
    ],
)
def test_the_error_of_an_invalid_body_is_a_sentence(client, content, message):
    error = error_of(client.post("/v1/predict", content), 422)
    assert error["message"] == message


def test_the_error_of_an_unknown_field_lists_the_fields(client):
    error = error_of(client.post("/v1/encode", {"texts": [], "pairs": []}), 422)
    assert error["where"] == "pairs"
    assert_mentions(error["message"], "model", "texts")
    error = error_of(client.post("/v1/encode", {"text": "", "pair": ""}), 422)
    assert error["where"] == "pair"
    assert_mentions(error["message"], "model", "text")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"model": "pair", "texts": ["a"]}, "missing_pairs"),
        ({"model": "text", "texts": ["a"], "pairs": ["b"]}, "unexpected_pairs"),
        ({"model": "document", "texts": [], "pairs": []}, "unexpected_pairs"),
        ({"model": "pair", "texts": ["a"], "pairs": []}, "pairs_length_mismatch"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/predict", "/v1/explain"])
def test_pairs_require_a_model_for_pairs(client, path, request_, code):
    error = error_of(client.post(path, request_), 422)
    assert (error["code"], error["where"]) == (code, "pairs")


def test_the_error_of_an_unknown_model_lists_the_models(client):
    error = error_of(client.post("/v1/predict", {"texts": [], "model": "texts"}), 404)
    assert (error["code"], error["where"]) == ("unknown_model", "model")
    assert_mentions(error["message"], "text", "pair", "document", "text-mean")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/v1/", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/redoc", 404, "not_found"),
        ("POST", "/v1/predict/", 404, "not_found"),
        ("GET", "/v1/predict", 405, "method_not_allowed"),
        ("PUT", "/v1/explain", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("POST", "/static/app.js", 405, "method_not_allowed"),
        ("DELETE", "/", 405, "method_not_allowed"),
    ],
)
def test_errors_of_unknown_paths_and_methods_have_the_same_format(
    client, method, path, status, code
):
    response = client.request(method, path)
    assert error_of(response, status)["code"] == code
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize(
    "media_type", ["text/plain", "application/x-www-form-urlencoded", ""]
)
def test_only_json_is_accepted(client, media_type):
    headers = {"content-type": media_type}
    response = client.post("/v1/predict", {"texts": []}, headers=headers)
    assert error_of(response, 415)["code"] == "unsupported_media_type"
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/predict", {"texts": []}, headers=headers).status_code == 200


def test_an_exception_in_a_model_fails_only_its_batch(
    serving, pipelines, monkeypatch, caplog
):
    client = serving(batch_wait=0.05)
    predict_proba = Pipeline.predict_proba

    def failing(self, texts, *args):
        if "secret words" in texts:
            raise ValueError(f"cannot read {texts}")
        return predict_proba(self, texts, *args)

    monkeypatch.setattr(Pipeline, "predict_proba", failing)
    requests = [{"texts": [text]} for text in ("good", "secret words")]
    for response in client.post_concurrently("/v1/predict", requests):
        error = error_of(response, 500)
        assert error["code"] == "internal_error"
        assert "ValueError" not in response.text
    assert client.post("/v1/predict", {"texts": ["good"]}).status_code == 200
    assert "ValueError" in caplog.text
    assert "failing" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("path", ["predict", "encode", "explain"])
def test_nan_is_an_internal_error(serving, pipelines, path):
    client = serving()
    weight = next(pipelines[3].model.encoder.parameters())
    original = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(torch.nan)
    try:
        response = client.post(f"/v1/{path}", {"texts": ["a"], "model": "text-mean"})
        assert error_of(response, 500)["code"] == "internal_error"
    finally:
        with torch.no_grad():
            weight.copy_(original)


def test_requests_of_disconnected_clients_are_not_computed(serving, pipelines):
    client = serving(batch_wait=0.05)
    sent = []

    async def disconnect():
        messages = [
            {"type": "http.request", "body": b'{"texts": ["a"]}', "more_body": False},
            {"type": "http.disconnect"},
        ]

        async def receive():
            return messages.pop(0)

        async def send(message):
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/predict"}
        await client.app(scope | {"headers": headers}, receive, send)
        await asyncio.sleep(0.1)

    client.run(disconnect())
    assert sent[0]["status"] == 499
    assert "perron_batch_texts_count 0.0" in client.get("/metrics").text
