"""Registration of components, plugins, and settings from constructors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from perron_tests.errors import mentions
from perron_tests.models import LABELS, built_in
from torch import nn

from perron import Aggregator, CentralityPool, Connectivity, project, weighted_sum
from perron.errors import SettingsError
from perron.layers import ENCODERS
from perron.models import ModelConfig, build_model, load_model
from perron.models.config import read_aggregator
from perron.pooling import AGGREGATORS, CONNECTIVITIES
from perron.registry import Registry, load_plugins, settings_from

PLUGIN = '''
"""An aggregator and a connectivity outside the package."""

from torch import nn

from perron import Aggregator, Connectivity, project, weighted_sum


class SharpPool(Aggregator):
    """Weight each token by a learned score."""

    recipe_name = "sharp"

    def __init__(self, embed_dim: int, temperature: float = 1.0) -> None:
        """Initialize the score.

        Args:
            embed_dim: Dimension of the states.
            temperature: Divisor of the scores.
        """
        super().__init__(embed_dim)
        if temperature <= 0:
            raise ValueError(f"temperature must be positive, got {temperature}.")
        self.temperature = temperature
        self.score = nn.Linear(embed_dim, 1)

    def aggregate(self, tokens, need_edges):
        scores = project(self.score, tokens.states) / self.temperature
        return weighted_sum(tokens.softmax(scores), tokens)


class CosineConnectivity(Connectivity):
    """Score a pair by the cosine similarity of its states."""

    recipe_name = "cosine"

    def __init__(self, embed_dim: int, num_heads: int = 1, scale: float = 1.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = scale

    def forward(self, tokens):
        states = tokens.to_padded(nn.functional.normalize(tokens.states, dim=-1))
        scores = self.scale * states @ states.mT
        return scores.unsqueeze(1).expand(-1, self.num_heads, -1, -1)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """Load a plugin module in this process, and return its folder."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "sharp_plugin.py").write_text(PLUGIN)
    before = os.getcwd()
    os.chdir(folder)
    try:
        load_plugins(["sharp_plugin"])
        yield folder
    finally:
        os.chdir(before)
        os.environ.pop("PERRON_PLUGINS", None)
        AGGREGATORS.unregister("sharp")
        CONNECTIVITIES.unregister("cosine")


def small(aggregator, **settings):
    return ModelConfig(
        settings={
            "embedding": {"embedding_dim": 6},
            "encoder": "none",
            "aggregator": aggregator,
            "head": {"hidden_dim": 4},
            **settings,
        },
        vocab_size=9,
        labels=LABELS,
    )


def run_in_new_process(code, folder, **environment):
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
    )
    return process.stdout.strip(), process.stderr


CUSTOM = [
    {"name": "sharp", "temperature": 0.5},
    {"name": "centrality", "connectivity": {"name": "cosine", "scale": 3.0}},
    {
        "name": "centrality",
        "connectivity": "cosine",
        "num_heads": 2,
        "max_relative_distance": 2,
    },
]


class TestPlugins:
    @pytest.mark.parametrize("aggregator", CUSTOM)
    def test_components_can_be_used_by_name_and_saved(
        self, plugin, aggregator, tmp_path
    ):
        model = build_model(small(aggregator)).eval()
        ids = torch.tensor([[1, 2, 3]])
        model.save_pretrained(tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert again.config.settings.aggregator == model.config.settings.aggregator
        assert torch.equal(again(ids).logits, model(ids).logits)

    @pytest.mark.parametrize("aggregator", CUSTOM)
    def test_a_new_process_loads_the_plugin_from_the_environment(
        self, plugin, aggregator, tmp_path
    ):
        model = build_model(small(aggregator)).eval()
        model.save_pretrained(tmp_path / "model")
        want = model(torch.tensor([[1, 2, 3]])).logits.tolist()
        code = (
            "import torch; from perron.models import load_model\n"
            f"model = load_model({str(tmp_path / 'model')!r})\n"
            "print(model(torch.tensor([[1, 2, 3]])).logits.tolist())"
        )
        out, _ = run_in_new_process(code, plugin, PERRON_PLUGINS=" sharp_plugin ,")
        torch.testing.assert_close(json.loads(out), want)

    def test_loading_a_model_does_not_import_plugins(self, plugin, tmp_path):
        build_model(small("sharp")).save_pretrained(tmp_path / "model")
        code = (
            "import sys; from perron.models import load_model\n"
            "try:\n"
            f"    load_model({str(tmp_path / 'model')!r})\n"
            "except ValueError as error:\n"
            "    print(error)\n"
            "print('sharp_plugin' in sys.modules)"
        )
        out, _ = run_in_new_process(code, plugin, PERRON_PLUGINS="")
        message, loaded = out.splitlines()
        assert loaded == "False"
        for part in ("'sharp'", "'centrality'", "--plugin", "PERRON_PLUGINS"):
            assert part in message

    def test_plugins_of_installed_packages_are_entry_points(self, plugin, tmp_path):
        (tmp_path / "sharp_plugin.py").write_text(PLUGIN)
        package = tmp_path / "sharp-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Name: sharp\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(
            "[perron.plugins]\nsharp = sharp_plugin\n"
        )
        code = (
            "from perron.pooling import AGGREGATORS\n"
            "print(AGGREGATORS['sharp'](4).embed_dim)"
        )
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        out, error = run_in_new_process(code, "/", PYTHONPATH=path, PERRON_PLUGINS="")
        assert out == "4", error

    @pytest.mark.parametrize(
        ("content", "parts"),
        [
            (None, ("ModuleNotFoundError", "broken_plugin")),
            ("1 / 0", ("ZeroDivisionError", "broken_plugin")),
        ],
    )
    def test_the_error_names_a_plugin_that_cannot_be_imported(
        self, tmp_path, content, parts
    ):
        if content is not None:
            (tmp_path / "broken_plugin.py").write_text(content)
        code = (
            "from perron.registry import load_plugins\n"
            "try:\n    load_plugins(['broken_plugin'])\n"
            "except ValueError as error:\n    print(error)"
        )
        out, _ = run_in_new_process(code, tmp_path)
        assert all(part in out for part in parts)

    def test_loaded_plugins_are_inherited_by_new_processes(self, plugin):
        code = (
            "import os; from perron.registry import load_plugins\n"
            "load_plugins(['sharp_plugin'])\n"
            "print(os.environ['PERRON_PLUGINS'])"
        )
        out, _ = run_in_new_process(code, plugin, PERRON_PLUGINS="json")
        assert out == "json,sharp_plugin"

    def test_the_constructor_validates_the_options_of_a_plugin(self, plugin):
        with pytest.raises(SettingsError, match=mentions("temperature", "-1.0")):
            read_aggregator({"name": "sharp", "temperature": -1})
        with pytest.raises(SettingsError, match=mentions("temprature", "temperature")):
            read_aggregator({"name": "sharp", "temprature": 1})
        with pytest.raises(SettingsError, match=mentions("connectivity", "'size'")):
            read_aggregator(
                {"name": "centrality", "connectivity": {"name": "cosine", "size": 1}}
            )

    def test_the_settings_contain_defaults_and_descriptions(self, plugin):
        field = settings_from(AGGREGATORS["sharp"]).model_fields["temperature"]
        assert (field.default, field.description) == (1.0, "Divisor of the scores.")


class TestRegistry:
    def test_a_name_cannot_be_registered_twice(self):
        registry = Registry("pool")
        registry.register("a", nn.Linear)
        with pytest.raises(SettingsError, match=mentions("'a'", "Linear", "Bilinear")):
            registry.register("a", nn.Bilinear)
        registry.register("a", nn.Linear)
        assert dict(registry) == {"a": nn.Linear}

    def test_a_redefined_class_replaces_the_first(self):
        registry = Registry("pool")

        def define():
            class Again:
                pass

            return Again

        first, second = define(), define()
        registry.register("a", first)
        registry.register("a", second)
        assert registry["a"] is second

    def test_equal_instances_are_different_components(self):
        registry = Registry("metric")
        registry.register("a", [1])
        with pytest.raises(SettingsError, match="'a'"):
            registry.register("a", [1])

    def test_the_error_for_an_unknown_name_lists_all_names(self):
        registry = Registry("pool")
        registry.register("a", 1)
        registry.register("b", 2)
        with pytest.raises(SettingsError, match=mentions("pool", '"a"', '"b"', "'c'")):
            registry["c"]
        assert "c" not in registry
        assert registry.get("c") is None

    def test_a_subclass_without_a_recipe_name_is_not_registered(self):
        before = dict(AGGREGATORS)

        class Variant(CentralityPool):
            pass

        assert dict(AGGREGATORS) == before
        assert Variant(4).recipe_name == "centrality"


class Scores(nn.Module):
    """Module that scores pairs and is not a subclass of `Connectivity`."""

    def __init__(self, heads):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(heads))

    def forward(self, tokens):
        states = tokens.to_padded(tokens.states)
        keys = [
            tokens.to_padded(project(layer, tokens.states)) for layer in self.layers
        ]
        return torch.stack(keys, 1) @ states.mT.unsqueeze(1)


class TestConnectivities:
    def test_any_module_that_scores_pairs_can_be_a_connectivity(self):
        states = torch.randn(2, 5, 4)
        mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
        pool = CentralityPool(4, num_heads=2, connectivity=Scores(2))
        pooled = pool(states, mask, need_edges=True)
        layer = pool.connectivity.layers[0]
        edges = (layer(states[0]) @ states[0].mT).softmax(0)
        torch.testing.assert_close(pooled.head_edges[0, 0], edges)
        assert "connectivity.layers.0.weight" in pool.state_dict()
        assert "'Scores'" in repr(pool)
        before = layer.weight.clone()
        pool.reset_parameters()
        assert not torch.equal(before, layer.weight)

    def test_scores_of_the_wrong_shape_raise_an_error(self):
        pool = CentralityPool(4, num_heads=3, connectivity=Scores(2))
        with pytest.raises(ValueError, match=mentions("(1, 3, 5, 5)", "(1, 2, 5, 5)")):
            pool(torch.randn(1, 5, 4))

    def test_unsupported_options_raise_an_error(self):
        parts = ("source_init_gain", "2.0", "'Scores'")
        with pytest.raises(ValueError, match=mentions(*parts)):
            CentralityPool(4, connectivity=Scores(1), source_init_gain=2.0)

    def test_num_heads_must_match_the_connectivity(self, plugin):
        class OneHead(Connectivity):
            recipe_name = "one-head"

            def __init__(self, embed_dim: int) -> None:
                super().__init__()

            def forward(self, tokens):
                raise NotImplementedError

        try:
            with pytest.raises(
                ValueError, match=mentions("num_heads", 1, 2, "'one-head'")
            ):
                CentralityPool(4, num_heads=2, connectivity="one-head")
        finally:
            CONNECTIVITIES.unregister("one-head")
        cosine = CONNECTIVITIES["cosine"](4, num_heads=3)
        with pytest.raises(ValueError, match=mentions("num_heads", 3, 2)):
            CentralityPool(4, num_heads=2, connectivity=cosine)

    def test_a_connectivity_without_a_dtype_argument_is_converted(self, plugin):
        pool = CentralityPool(
            4, connectivity="cosine", value="incoming", dtype=torch.half
        )
        assert {p.dtype for p in pool.parameters()} == {torch.half}


class TestAggregators:
    def test_has_weights_must_match_the_output(self):
        class Inconsistent(Aggregator):
            has_weights = False

            def aggregate(self, tokens, need_edges):
                return weighted_sum(tokens.mean_weights(), tokens)

        with pytest.raises(TypeError, match=mentions("Inconsistent", "has_weights")):
            Inconsistent()(torch.randn(1, 2, 3))

    def test_a_module_with_parameters_must_define_reset_parameters(self):
        class NoReset(Aggregator):
            def __init__(self):
                super().__init__(4)
                self.query = nn.Parameter(torch.zeros(4))

            def aggregate(self, tokens, need_edges):
                raise NotImplementedError

        with pytest.raises(TypeError, match=mentions("NoReset", "reset_parameters")):
            NoReset().reset_parameters()


DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ("| `model.encoder` |", built_in(ENCODERS) | {"hf:NAME"}),
        ("| `model.aggregator` |", built_in(AGGREGATORS)),
    ],
)
def test_the_training_guide_lists_every_component(row, names):
    lines = (DOCS / "training.md").read_text().splitlines()
    (line,) = (line.removeprefix(row) for line in lines if line.startswith(row))
    assert set(re.findall(r"`([\w:-]+)`", line)) == names


def test_the_choosing_guide_lists_every_connectivity():
    text = (DOCS / "choosing.md").read_text()
    section = text.split("\n## Connectivity\n")[1].split("\n## ")[0]
    assert set(re.findall(r'^- `"(\w+)"`', section, re.M)) == built_in(CONNECTIVITIES)
