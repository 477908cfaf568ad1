"""More than is allowed is refused before anything slow is done with it."""

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
    """Return a request of exactly so many bytes."""
    empty = len(json.dumps({"texts": [""]}))
    return json.dumps({"texts": ["a" * (size - empty)]})


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_have_so_many_bytes(serving, chunked):
    client = serving(max_body=1000)

    async def pieces(text):
        for begin in range(0, len(text), 300):
            yield text[begin : begin + 300].encode()

    def post(size):
        text = body_of(size)
        content = pieces(text) if chunked else text.encode()
        headers = {"content-type": "application/json"}
        return client.ask("POST", "/v1/predict", content=content, headers=headers)

    assert post(1000).status_code == 200
    answer = post(1001)
    assert error_of(answer, 413)["code"] == "body_too_large"
    assert "1000 bytes" in answer.text


def test_a_body_that_says_it_is_large_is_not_waited_for(client):
    async def never():
        await asyncio.sleep(60)
        yield b""

    headers = {"content-type": "application/json", "content-length": "4000001"}
    answer = client.ask("POST", "/v1/predict", content=never(), headers=headers)
    assert error_of(answer, 413)["code"] == "body_too_large"


def test_a_body_that_never_ends_is_given_up(serving):
    client = serving(max_seconds=0.05)

    async def never():
        yield b'{"texts": ["a'
        await asyncio.sleep(60)

    headers = {"content-type": "application/json"}
    answer = client.ask("POST", "/v1/predict", content=never(), headers=headers)
    assert error_of(answer, 408)["code"] == "body_too_slow"
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("path", PATHS)
def test_a_request_may_have_so_many_texts(serving, path):
    client = serving(max_texts=3, max_explained_texts=3)
    assert client.post(path, {"texts": ["a"] * 3}).status_code == 200
    error = error_of(client.post(path, {"texts": ["a"] * 4}), 422)
    assert (error["code"], error["where"]) == ("too_many_texts", "texts")
    assert_mentions(error["message"], 3, 4)


@pytest.mark.parametrize("path", PATHS)
def test_a_text_may_have_so_many_words(serving, path):
    client = serving(max_words=4, max_explained_words=4)
    assert client.post(path, {"texts": ["a  b\nc d", "\u3000"]}).status_code == 200
    error = error_of(client.post(path, {"texts": ["a", "a b c d e"]}), 422)
    assert (error["code"], error["where"]) == ("too_many_words", "texts.1")
    assert "4 words" in error["message"]


@pytest.mark.parametrize("path", PATHS)
def test_a_text_may_have_so_many_characters(serving, path):
    client = serving(max_characters=10)
    assert client.post(path, {"texts": ["!" * 10]}).status_code == 200
    error = error_of(client.post(path, {"texts": ["!" * 11]}), 422)
    assert (error["code"], error["where"]) == ("too_many_characters", "texts.0")


@pytest.mark.parametrize("path", PATHS)
def test_one_text_has_the_same_limits(serving, path):
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


def test_marks_are_words_when_edges_are_counted(serving):
    client = serving(max_explained_words=5)
    assert client.post("/v1/explain", {"texts": ["!?!?!"]}).status_code == 200
    answer = client.post("/v1/explain", {"texts": ["a", "!?!?!?"]})
    error = error_of(answer, 422)
    assert (error["code"], error["where"]) == ("too_many_words", "texts.1")
    assert client.post("/v1/predict", {"texts": ["!?!?!?"]}).status_code == 200


@pytest.fixture
def gate(monkeypatch):
    """Return a gate for predictions, open at first, that notes what comes when shut."""
    gate = threading.Event()
    gate.set()
    gate.batches = []
    before = Pipeline.predict_proba

    def held(self, texts, *rest):
        if not gate.is_set():
            gate.batches.append(texts)
        assert gate.wait(10)
        return before(self, texts, *rest)

    monkeypatch.setattr(Pipeline, "predict_proba", held)
    yield gate
    gate.set()


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_a_full_queue_is_told_at_once_and_takes_texts_again_later(serving, gate):
    client = serving(max_queue=4, batch_wait=0.0)
    gate.clear()

    def post(texts, path="/v1/predict"):
        return asyncio.ensure_future(client.http.post(path, json={"texts": texts}))

    async def scene():
        first = post(["computed"])
        await until(lambda: gate.batches)
        waiting = post(["a", "b", "c"])
        await until(lambda: client.service.batcher.waiting == 3)
        refused = [await post(["d", "e"]), await post(["d", "e"], "/v1/explain")]
        assert client.service.batcher.waiting == 3
        gate.set()
        return refused, [await first, await waiting, await post(["d", "e"])]

    refused, answered = client.run(scene())
    for answer in refused:
        assert error_of(answer, 429)["code"] == "queue_full"
        assert answer.headers["retry-after"] == "1"
    assert [answer.status_code for answer in answered] == [200, 200, 200]


def test_a_request_may_take_so_long_and_is_then_not_computed(serving, gate):
    client = serving(max_seconds=1.0, batch_wait=0.0)
    gate.clear()

    async def scene():
        posts = []
        for text in ("slow", "waits"):
            post = client.http.post("/v1/predict", json={"texts": [text]})
            posts.append(asyncio.ensure_future(post))
            await until(lambda: gate.batches)
        answers = await asyncio.gather(*posts)
        assert client.service.batcher.waiting == 0
        gate.set()
        return [*answers, await client.http.post("/v1/predict", json={"texts": ["a"]})]

    *late, last = client.run(scene())
    for answer in late:
        assert error_of(answer, 503)["code"] == "too_slow"
        assert answer.headers["retry-after"] == "1"
    assert last.status_code == 200
    assert gate.batches == [["slow"]]
    assert "perron_batch_texts_count 2.0" in client.get("/metrics").text


def test_the_server_closes_only_when_what_is_under_way_is_done(serving, gate):
    client = serving(batch_wait=0.0)
    gate.clear()

    async def scene():
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

    assert client.run(scene()).status_code == 200


@pytest.mark.parametrize(
    ("kind", "max_words", "want"),
    [("text", 50, 64), ("pair", 1000, 16), ("text", 9000, 1), ("document", 200, 10)],
)
def test_long_texts_are_not_all_scored_at_once(kind, max_words, want):
    pipeline = small_pipeline(kind)
    config = pipeline.model.config
    changed = {"max_words": max_words, "max_sentences": 40}
    pipeline.model.config = config.model_copy(update=changed)
    assert batch_size(pipeline) == want


@pytest.mark.parametrize("field", fields(Limits), ids=lambda field: field.name)
def test_limits_that_make_no_sense_are_refused(field):
    value = field.type(-1)
    with pytest.raises(ValueError, match=mentions(field.name, value)):
        Limits(**{field.name: value})
