"""`perron serve` before it serves; tests/serve has the rest."""

import inspect
import sys
from dataclasses import fields
from typing import get_args

import pytest
from perron_tests.errors import assert_mentions

from perron.cli.serve import serve
from perron.serve import Limits
from perron.serve.app import KEY, listen


def test_every_limit_is_an_option_with_the_same_default_bound_and_help():
    options = inspect.signature(serve).parameters
    limits = {field.name: field for field in fields(Limits)}
    assert set(options) == {"models", "host", "port", "threads", *limits}
    for name, field in limits.items():
        assert options[name].default == field.default
        kind, option = get_args(options[name].annotation)
        assert kind is field.type
        assert option.help == field.metadata["description"]
        assert option.min == field.metadata["ge"]


def test_a_limit_below_its_bound_is_refused(perron, model):
    told = perron("serve", model, "--max-texts", 0)
    assert told.status == 2
    assert "--max-texts" in told.err


def test_other_machines_are_not_served_without_a_key(perron, model, monkeypatch):
    monkeypatch.setenv(KEY, "")
    told = perron("serve", model, "--host", "0.0.0.0")
    assert told.status == 2
    assert_mentions(told.err, "PERRON_API_KEY")


def test_a_port_that_is_taken_is_told(perron, model):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        told = perron("serve", model, "--port", port)
    assert told.status == 1
    assert_mentions(told.err, f"port {port}", "127.0.0.1")


def test_a_model_that_is_not_there_is_told(perron, tmp_path):
    told = perron("serve", tmp_path / "nothing", "--port", 0)
    assert told.status == 1
    assert_mentions(told.err, tmp_path / "nothing")


def test_the_same_model_twice_is_told(perron, model):
    told = perron("serve", model, model, "--port", 0)
    assert told.status == 2
    assert_mentions(told.err, model, "twice")


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_a_missing_extra_is_told(perron, model, monkeypatch, missing):
    for name in list(sys.modules):
        if name.startswith("perron.serve") or name.split(".")[0] == missing:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    told = perron("serve", model)
    assert told.status == 2
    assert_mentions(told.err, missing, "pip install 'perron[serve]'")


def test_a_queue_that_has_no_room_for_a_request_is_refused(perron, model):
    told = perron("serve", model, "--port", 0, "--max-queue", 255)
    assert told.status == 2
    assert_mentions(told.err, "--max-queue", "--max-texts", 256, 255)
