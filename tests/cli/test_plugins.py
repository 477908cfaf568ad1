"""Components of a module outside the package, named on the command line."""

import os
import subprocess
import sys

import pytest

from perron.cli.app import split_global_options

PLUGIN = '''
from perron import Aggregator


class LastPool(Aggregator):
    """The state of the last word."""

    recipe_name = "my-last"
    has_weights = False

    def aggregate(self, words, need_edges):
        raise NotImplementedError
'''


@pytest.fixture
def perron(tmp_path):
    """Return a command that runs in a folder with a plugin, ``my_pools``."""
    (tmp_path / "my_pools.py").write_text(PLUGIN)

    def command(*arguments, **environment):
        given = {**os.environ, "COLUMNS": "300", "PERRON_PLUGINS": "", **environment}
        return subprocess.run(
            [sys.executable, "-m", "perron", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=given,
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


def test_info_lists_the_components_of_the_package(perron):
    shown = perron("info").stdout
    for name in ("self-attention", "low_rank", "bilstm"):
        assert name in shown
    assert "my-last" not in shown


def test_a_plugin_that_cannot_be_imported_is_named(perron):
    run = perron("info", "--plugin", "no_such_module")
    assert run.returncode == 2
    assert "no_such_module" in run.stderr
    assert "Traceback" not in run.stderr


def test_a_plugin_needs_a_name(perron):
    run = perron("info", "--plugin")
    assert run.returncode == 2
    assert "--plugin" in run.stderr


@pytest.mark.parametrize(
    ("typed", "rest", "plugins", "debug"),
    [
        ("train demo --plugin a --quiet", "train demo --quiet", ["a"], False),
        ("--plugin a --plugin=b info --debug", "info", ["a", "b"], True),
        ("predict m -- --plugin --debug", "predict m -- --plugin --debug", [], False),
    ],
)
def testsplit_global_options_may_stand_anywhere_before_two_dashes(
    typed, rest, plugins, debug
):
    assert split_global_options(typed.split()) == (rest.split(), plugins, debug)
