"""Options and startup errors of `perron serve`. The server is tested in tests/serve."""

import inspect
import sys
from dataclasses import fields
from typing import get_args

import pytest
from perron_tests.errors import assert_mentions

from perron.cli.serve import serve
from perron.serve import Limits
from perron.serve.app import API_KEY_VARIABLE, listen


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


def test_a_limit_below_its_bound_is_an_error(perron, model):
    outcome = perron("serve", model, "--max-texts", 0)
    assert outcome.status == 2
    assert "--max-texts" in outcome.err


def test_a_public_address_requires_a_key(perron, model, monkeypatch):
    monkeypatch.setenv(API_KEY_VARIABLE, "")
    outcome = perron("serve", model, "--host", "0.0.0.0")
    assert outcome.status == 2
    assert_mentions(outcome.err, "PERRON_API_KEY")


def test_a_port_in_use_is_an_error(perron, model):
    with listen("127.0.0.1", 0) as used:
        port = used.getsockname()[1]
        outcome = perron("serve", model, "--port", port)
    assert outcome.status == 1
    assert_mentions(outcome.err, f"port {port}", "127.0.0.1")


def test_a_missing_model_is_an_error(perron, tmp_path):
    outcome = perron("serve", tmp_path / "nothing", "--port", 0)
    assert outcome.status == 1
    assert_mentions(outcome.err, tmp_path / "nothing")


def test_a_duplicate_model_is_an_error(perron, model):
    outcome = perron("serve", model, model, "--port", 0)
    assert outcome.status == 2
    assert_mentions(outcome.err, model, "twice")


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client"])
def test_a_missing_extra_is_reported(perron, model, monkeypatch, missing):
    for name in list(sys.modules):
        if name.startswith("perron.serve") or name.split(".")[0] == missing:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    outcome = perron("serve", model)
    assert outcome.status == 2
    assert_mentions(outcome.err, missing, "pip install 'perron[serve]'")


def test_a_queue_smaller_than_a_request_is_an_error(perron, model):
    outcome = perron("serve", model, "--port", 0, "--max-queue", 255)
    assert outcome.status == 2
    assert_mentions(outcome.err, "--max-queue", "--max-texts", 256, 255)
