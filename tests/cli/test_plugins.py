"""Plugins: components defined in a module outside the package."""

import os
import subprocess
import sys

import pytest

from perron.cli.app import split_global_options

PLUGIN = '''
from perron import Aggregator


class LastPool(Aggregator):
    """Return the state of the last word."""

    recipe_name = "my-last"
    has_weights = False

    def aggregate(self, tokens, need_edges):
        raise NotImplementedError
'''


@pytest.fixture
def perron(tmp_path):
    """Return a function that runs commands in a folder with the plugin ``my_pools``."""
    (tmp_path / "my_pools.py").write_text(PLUGIN)

    def command(*arguments, **environment):
        variables = {"COLUMNS": "300", "PERRON_PLUGINS": "", **environment}
        return subprocess.run(
            [sys.executable, "-m", "perron", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **variables},
        )

    return command


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--plugin", "my_pools", "info"], {}),
        (["info", "--plugin=my_pools"], {}),
        (["info"], {"PERRON_PLUGINS": "my_pools"}),
    ],
)
def test_info_lists_the_components_of_plugins(perron, arguments, environment):
    run = perron(*arguments, **environment)
    assert run.returncode == 0, run.stderr
    assert "centrality" in run.stdout
    assert "my-last" in run.stdout


def test_info_lists_built_in_components(perron):
    output = perron("info").stdout
    for name in ("self-attention", "low_rank", "bilstm"):
        assert name in output
    assert "my-last" not in output


def test_a_plugin_that_cannot_be_imported_is_reported(perron):
    run = perron("info", "--plugin", "no_such_module")
    assert run.returncode == 2
    assert "no_such_module" in run.stderr
    assert "Traceback" not in run.stderr


def test_plugin_requires_a_value(perron):
    run = perron("info", "--plugin")
    assert run.returncode == 2
    assert "--plugin" in run.stderr


@pytest.mark.parametrize(
    ("arguments", "remaining", "plugins", "debug"),
    [
        ("train demo --plugin a --quiet", "train demo --quiet", ["a"], False),
        ("--plugin a --plugin=b info --debug", "info", ["a", "b"], True),
        ("predict m -- --plugin --debug", "predict m -- --plugin --debug", [], False),
    ],
)
def test_global_options_may_appear_anywhere_before_two_dashes(
    arguments, remaining, plugins, debug
):
    result = split_global_options(arguments.split())
    assert result == (remaining.split(), plugins, debug)
