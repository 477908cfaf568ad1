"""Requests that exceed a limit are rejected before any expensive computation."""

import asyncio
import json
import threading
from dataclasses import fields

import pytest
from perron_tests.clients import error_of
from perron_tests.errors import assert_mentions, mentions
from perron_tests.pipelines import small_pipeline

from perron import Pipeline
from perron.serve import Limits
from perron.serve.operations import batch_size

PATHS = ["/v1/predict", "/v1/encode", "/v1/explain"]


def body_of(size):
    """Return a request of exactly this number of bytes."""
    empty = len(json.dumps({"texts": [""]}))
    return json.dumps({"texts": ["a" * (size - empty)]})


@pytest.mark.parametrize("chunked", [False, True])
def test_the_size_of_the_body_is_limited(serving, chunked):
    client = serving(max_body=1000)

    async def chunks(text):
        for start in range(0, len(text), 300):
            yield text[start : start + 300].encode()

    def post(size):
        text = body_of(size)
        content = chunks(text) if chunked else text.encode()
        headers = {"content-type": "application/json"}
        return client.request("POST", "/v1/predict", content=content, headers=headers)

    assert post(1000).status_code == 200
    response = post(1001)
    assert error_of(response, 413)["code"] == "body_too_large"
    assert "1000 bytes" in response.text


def test_a_large_content_length_is_rejected_immediately(client):
    async def never():
        await asyncio.sleep(60)
        yield b""

    headers = {"content-type": "application/json", "content-length": "4000001"}
    response = client.request("POST", "/v1/predict", content=never(), headers=headers)
    assert error_of(response, 413)["code"] == "body_too_large"


def test_a_body_that_does_not_arrive_in_time_is_an_error(serving):
    client = serving(max_seconds=0.05)

    async def never():
        yield b'{"texts": ["a'
        await asyncio.sleep(60)

    headers = {"content-type": "application/json"}
    response = client.request("POST", "/v1/predict", content=never(), headers=headers)
    assert error_of(response, 408)["code"] == "request_timeout"
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("path", PATHS)
def test_the_number_of_texts_is_limited(serving, path):
    client = serving(max_texts=3, max_explained_texts=3)
    assert client.post(path, {"texts": ["a"] * 3}).status_code == 200
    error = error_of(client.post(path, {"texts": ["a"] * 4}), 422)
    assert (error["code"], error["where"]) == ("too_many_texts", "texts")
    assert_mentions(error["message"], 3, 4)


@pytest.mark.parametrize("path", PATHS)
def test_the_number_of_words_is_limited(serving, path):
    client = serving(max_words=4, max_explained_words=4)
    assert client.post(path, {"texts": ["a  b\nc d", "\u3000"]}).status_code == 200
    error = error_of(client.post(path, {"texts": ["a", "a b c d e"]}), 422)
    assert (error["code"], error["where"]) == ("too_many_words", "texts.1")
    assert "4 words" in error["message"]


@pytest.mark.parametrize("path", PATHS)
def test_the_number_of_characters_is_limited(serving, path):
    client = serving(max_characters=10)
    assert client.post(path, {"texts": ["!" * 10]}).status_code == 200
    error = error_of(client.post(path, {"texts": ["!" * 11]}), 422)
    assert (error["code"], error["where"]) == ("too_many_characters", "texts.0")


@pytest.mark.parametrize("path", PATHS)
def test_a_single_text_has_the_same_limits(serving, path):
    client = serving(max_words=4, max_explained_words=4, max_characters=20)
    assert client.post(path, {"text": "a b c d"}).status_code == 200
    error = error_of(client.post(path, {"text": "a b c d e"}), 422)
    assert (error["code"], error["where"]) == ("too_many_words", "text")
    error = error_of(client.post(path, {"text": "!" * 21}), 422)
    assert (error["code"], error["where"]) == ("too_many_characters", "text")


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/explain"])
def test_the_second_text_of_a_pair_has_the_same_limits(serving, path):
    client = serving(max_words=2, max_explained_words=2)
    request = {"model": "pair", "texts": ["a", "a"], "pairs": ["a", "a b c"]}
    error = error_of(client.post(path, request), 422)
    assert (error["code"], error["where"]) == ("too_many_words", "pairs.1")
    request = {"model": "pair", "text": "a", "pair": "a b c"}
    error = error_of(client.post(path, request), 422)
    assert (error["code"], error["where"]) == ("too_many_words", "pair")


def test_punctuation_counts_as_words_in_explain(serving):
    client = serving(max_explained_words=5)
    assert client.post("/v1/explain", {"texts": ["!?!?!"]}).status_code == 200
    response = client.post("/v1/explain", {"texts": ["a", "!?!?!?"]})
    error = error_of(response, 422)
    assert (error["code"], error["where"]) == ("too_many_words", "texts.1")
    assert client.post("/v1/predict", {"texts": ["!?!?!?"]}).status_code == 200


@pytest.fixture
def gate(monkeypatch):
    """Return an event that blocks predictions while cleared and records them."""
    gate = threading.Event()
    gate.set()
    gate.batches = []
    predict_proba = Pipeline.predict_proba

    def blocking(self, texts, *args):
        if not gate.is_set():
            gate.batches.append(texts)
        assert gate.wait(10)
        return predict_proba(self, texts, *args)

    monkeypatch.setattr(Pipeline, "predict_proba", blocking)
    yield gate
    gate.set()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_full_queue_rejects_requests_until_it_empties(serving, gate):
    client = serving(max_queue=4, batch_wait=0.0)
    gate.clear()

    def post(texts, path="/v1/predict"):
        return asyncio.ensure_future(client.http.post(path, json={"texts": texts}))

    async def scenario():
        first = post(["computed"])
        await until(lambda: gate.batches)
        waiting = post(["a", "b", "c"])
        await until(lambda: client.service.batcher.waiting == 3)
        rejected = [await post(["d", "e"]), await post(["d", "e"], "/v1/explain")]
        assert client.service.batcher.waiting == 3
        gate.set()
        return rejected, [await first, await waiting, await post(["d", "e"])]

    rejected, accepted = client.run(scenario())
    for response in rejected:
        assert error_of(response, 429)["code"] == "queue_full"
        assert response.headers["retry-after"] == "1"
    assert [response.status_code for response in accepted] == [200, 200, 200]


def test_requests_time_out_and_are_not_computed_later(serving, gate):
    client = serving(max_seconds=1.0, batch_wait=0.0)
    gate.clear()

    async def scenario():
        posts = []
        for text in ("slow", "waits"):
            post = client.http.post("/v1/predict", json={"texts": [text]})
            posts.append(asyncio.ensure_future(post))
            await until(lambda: gate.batches)
        responses = await asyncio.gather(*posts)
        assert client.service.batcher.waiting == 0
        gate.set()
        return [
            *responses,
            await client.http.post("/v1/predict", json={"texts": ["a"]}),
        ]

    *late, last = client.run(scenario())
    for response in late:
        assert error_of(response, 503)["code"] == "timeout"
        assert response.headers["retry-after"] == "1"
    assert last.status_code == 200
    assert gate.batches == [["slow"]]
    assert "perron_batch_texts_count 2.0" in client.get("/metrics").text


def test_closing_waits_for_requests_in_progress(serving, gate):
    client = serving(batch_wait=0.0)
    gate.clear()

    async def scenario():
        post = asyncio.ensure_future(
            client.http.post("/v1/predict", json={"texts": ["good"]})
        )
        await until(lambda: gate.batches)
        closing = asyncio.ensure_future(client.service.batcher.close())
        await asyncio.sleep(0.02)
        assert not closing.done()
        gate.set()
        await closing
        return await post

    assert client.run(scenario()).status_code == 200


@pytest.mark.parametrize(
    ("kind", "max_words", "size"),
    [("text", 50, 64), ("pair", 1000, 16), ("text", 9000, 1), ("document", 200, 10)],
)
def test_batches_of_long_texts_are_smaller(kind, max_words, size):
    pipeline = small_pipeline(kind)
    config = pipeline.model.config
    changed = {"max_words": max_words, "max_sentences": 40}
    pipeline.model.config = config.model_copy(update=changed)
    assert batch_size(pipeline) == size


@pytest.mark.parametrize("field", fields(Limits), ids=lambda field: field.name)
def test_limits_below_their_minimum_are_an_error(field):
    value = field.type(-1)
    with pytest.raises(ValueError, match=mentions(field.name, value)):
        Limits(**{field.name: value})
