"""Answers are the pipeline's own; every mistake is told in one shape."""

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


def of_name(pipelines, name):
    return next(pipeline for pipeline in pipelines if pipeline.name == name)


def request_of(name, texts=TEXTS, pairs=OTHERS):
    pairs = {"pairs": pairs} if name == "pair" else {}
    return {"model": name, "texts": texts, **pairs}


@pytest.mark.parametrize("name", KINDS)
def test_predictions_are_those_of_the_pipeline(client, pipelines, name):
    answer = client.post("/v1/predict", request_of(name))
    assert answer.status_code == 200
    pipeline = of_name(pipelines, name)
    want = pipeline.predict_proba(TEXTS, OTHERS if name == "pair" else None)
    told = answer.json()
    assert told["model"] == name
    shares = [list(one["probabilities"].values()) for one in told["predictions"]]
    np.testing.assert_allclose(shares, want, rtol=1e-5)
    assert all(
        tuple(o["probabilities"]) == pipeline.labels for o in told["predictions"]
    )
    best = [pipeline.labels[row] for row in want.argmax(1)]
    assert [one["label"] for one in told["predictions"]] == best


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_those_of_the_pipeline(client, pipelines, name):
    answer = client.post("/v1/encode", {"model": name, "texts": TEXTS})
    want = of_name(pipelines, name).encode(TEXTS)
    np.testing.assert_allclose(answer.json()["vectors"], want, atol=1e-6)


@pytest.mark.parametrize("name", [*KINDS, "text-mean"])
def test_records_are_those_of_the_pipeline(client, pipelines, name):
    answer = client.post("/v1/explain", request_of(name))
    pairs = OTHERS if name == "pair" else [None] * len(TEXTS)
    pipeline = of_name(pipelines, name)
    want = [
        json.loads(pipeline.explain(text, pair).to_json())
        for text, pair in zip(TEXTS, pairs, strict=True)
    ]
    assert answer.json() == {"model": name, "records": want}


@pytest.mark.parametrize("path", ["predict", "encode", "explain"])
@pytest.mark.parametrize("name", KINDS)
def test_one_text_is_answered_like_a_list_of_one(client, path, name):
    one = {"model": name, "text": TEXTS[0]}
    several = {"model": name, "texts": TEXTS[:1]}
    if name == "pair" and path != "encode":
        one["pair"], several["pairs"] = OTHERS[0], OTHERS[:1]
    answer = client.post(f"/v1/{path}", one)
    assert answer.status_code == 200
    assert answer.json() == client.post(f"/v1/{path}", several).json()


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"model": "pair", "text": "a"}, "pairs_missing"),
        ({"model": "pair", "text": "a", "pair": None}, "pairs_missing"),
        ({"model": "text", "text": "a", "pair": "b"}, "pairs_not_wanted"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/predict", "/v1/explain"])
def test_one_pair_is_for_pair_models_and_for_no_other(client, path, request_, code):
    error = error_of(client.post(path, request_), 422)
    assert (error["code"], error["where"]) == (code, "pair")


def test_the_first_model_answers_where_none_is_named(client):
    for model in ({}, {"model": None}):
        answer = client.post("/v1/predict", {"texts": ["good"], **model})
        assert answer.json()["model"] == "text"


@pytest.mark.parametrize("path", ["predict", "encode", "explain"])
def test_no_texts_are_an_empty_answer(client, path):
    model, results = client.post(f"/v1/{path}", {"texts": []}).json().values()
    assert (model, results) == ("text", [])


def test_models_are_listed_with_the_limits(client, serving):
    told = client.get("/v1/models").json()
    assert [model["name"] for model in told["models"]] == [*KINDS, "text-mean"]
    assert told["models"][2] == {
        "name": "document",
        "kind": "document",
        "encoder": "bilstm",
        "aggregator": "centrality",
        "labels": ["bad", "fair", "good"],
        "max_words": 10,
        "max_sentences": 4,
    }
    assert told["version"] == perron.__version__
    assert serving(max_texts=7).get("/v1/models").json()["limits"]["max_texts"] == 7


def test_requests_that_arrive_together_are_pooled_together(serving, pipelines):
    client = serving(batch_wait=0.05)
    texts = [[text, text + " it"] for text in TEXTS]
    answers = client.together("/v1/predict", [{"texts": two} for two in texts])
    for two, answer in zip(texts, answers, strict=True):
        shares = [o["probabilities"].values() for o in answer.json()["predictions"]]
        want = pipelines[0].predict_proba(two)
        np.testing.assert_allclose([list(s) for s in shares], want, rtol=1e-5)
    told = client.get("/metrics").text.splitlines()
    assert "perron_batch_texts_count 1.0" in told
    assert f"perron_batch_texts_sum {2.0 * len(texts)}" in told


def test_metrics_count_requests_texts_and_time(serving):
    client = serving()
    client.post("/v1/predict", {"texts": ["a", "b"]})
    client.post("/v1/encode", {"texts": ["a"], "model": "document"})
    client.post("/v1/predict", "{")
    for path in ("/v1/nothing", "/odd/one", "/static/nothing.js", "/openapi.json", "/"):
        client.get(path)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
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
        assert line in answer.text.splitlines()


def test_it_is_well_until_it_stops(serving):
    client = serving()
    assert client.get("/healthz").json() == {"status": "ok"}
    client.service.stopping = True
    answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})
    answer = client.post("/v1/predict", {"texts": ["a"]})
    assert error_of(answer, 503)["code"] == "stopping"
    assert answer.headers["retry-after"] == "1"


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
        ("null", "wrong_type", None),
        ('"texts"', "wrong_type", None),
        ("{}", "missing_field", "texts"),
        ('{"texts": "a"}', "wrong_type", "texts"),
        ('{"texts": ["a", 1]}', "wrong_type", "texts.1"),
        ('{"texts": [NaN]}', "wrong_type", "texts.0"),
        ('{"texts": ["a"], "model": 1}', "wrong_type", "model"),
        ('{"texts": null}', "wrong_type", "texts"),
        ('{"texts": ["a"], "text": "b"}', "text_and_texts", "texts"),
        ('{"texts": ["a"], "pair": "b"}', "text_and_texts", "texts"),
        ('{"text": ["a"]}', "wrong_type", "text"),
        ('{"text": null}', "wrong_type", "text"),
        ('{"pair": "b"}', "missing_field", "text"),
        ('{"pairs": ["b"]}', "missing_field", "texts"),
        ('{"text": "a", "pairs": ["b"]}', "unknown_field", "pairs"),
        ('{"txt": "a"}', "unknown_field", "txt"),  # which explains what is missing
        ('{"texts": ["a"], "' + 200 * "x" + '": 0}', "unknown_field", "x" * 100),
    ],
)
def test_what_is_no_request_is_told_so(client, content, code, where):
    error = error_of(client.post("/v1/predict", content), 422)
    assert (error["code"], error["where"]) == (code, where)


def test_an_unknown_field_is_told_which_there_are(client):
    error = error_of(client.post("/v1/encode", {"texts": [], "pairs": []}), 422)
    assert error["where"] == "pairs"
    assert_mentions(error["message"], "model", "texts")
    error = error_of(client.post("/v1/encode", {"text": "", "pair": ""}), 422)
    assert error["where"] == "pair"
    assert_mentions(error["message"], "model", "text")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"model": "pair", "texts": ["a"]}, "pairs_missing"),
        ({"model": "text", "texts": ["a"], "pairs": ["b"]}, "pairs_not_wanted"),
        ({"model": "document", "texts": [], "pairs": []}, "pairs_not_wanted"),
        ({"model": "pair", "texts": ["a"], "pairs": []}, "pairs_not_as_many"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/predict", "/v1/explain"])
def test_pairs_are_for_pair_models_and_for_no_other(client, path, request_, code):
    error = error_of(client.post(path, request_), 422)
    assert (error["code"], error["where"]) == (code, "pairs")


def test_an_unknown_model_is_told_which_there_are(client):
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
def test_wrong_paths_and_methods_have_the_same_shape(
    client, method, path, status, code
):
    answer = client.ask(method, path)
    assert error_of(answer, status)["code"] == code
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", ""]
)
def test_only_json_is_read(client, kind):
    answer = client.post("/v1/predict", {"texts": []}, headers={"content-type": kind})
    assert error_of(answer, 415)["code"] == "no_json"
    typed = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/predict", {"texts": []}, headers=typed).status_code == 200


def test_an_error_in_the_model_is_500_for_its_batch_and_then_all_is_well(
    serving, pipelines, monkeypatch, caplog
):
    client = serving(batch_wait=0.05)
    before = Pipeline.predict_proba

    def failing(self, texts, *rest):
        if "secret words" in texts:
            raise ValueError(f"cannot read {texts}")
        return before(self, texts, *rest)

    monkeypatch.setattr(Pipeline, "predict_proba", failing)
    requests = [{"texts": [text]} for text in ("good", "secret words")]
    for answer in client.together("/v1/predict", requests):
        error = error_of(answer, 500)
        assert error["code"] == "internal_error"
        assert "ValueError" not in answer.text
    assert client.post("/v1/predict", {"texts": ["good"]}).status_code == 200
    assert "ValueError" in caplog.text
    assert "failing" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("path", ["predict", "encode", "explain"])
def test_what_is_no_number_is_an_error_and_no_answer(serving, pipelines, path):
    client = serving()
    weight = next(pipelines[3].model.encoder.parameters())
    before = weight.detach().clone()
    with torch.no_grad():
        weight.fill_(torch.nan)
    try:
        answer = client.post(f"/v1/{path}", {"texts": ["a"], "model": "text-mean"})
        assert error_of(answer, 500)["code"] == "internal_error"
    finally:
        with torch.no_grad():
            weight.copy_(before)


def test_a_client_that_went_away_is_not_computed_for(serving, pipelines):
    client = serving(batch_wait=0.05)
    told = []

    async def leave():
        messages = [
            {"type": "http.request", "body": b'{"texts": ["a"]}', "more_body": False},
            {"type": "http.disconnect"},
        ]

        async def receive():
            return messages.pop(0)

        async def send(message):
            told.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/predict"}
        await client.app(scope | {"headers": headers}, receive, send)
        await asyncio.sleep(0.1)

    client.run(leave())
    assert told[0]["status"] == 499
    assert "perron_batch_texts_count 0.0" in client.get("/metrics").text
