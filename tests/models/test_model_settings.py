import inspect
import pickle
import re

import pytest
from perron_tests.errors import first_problem, mentions
from perron_tests.models import KINDS, LABELS, small_config
from pydantic import ValidationError

from perron.layers import ENCODERS, ClassifierHead, WordEmbedding
from perron.models import ModelConfig, ModelSettings
from perron.models import config as config_module
from perron.models.config import EmbeddingSettings, HeadSettings, Settings
from perron.pooling import AGGREGATORS
from perron.registry import settings_from

COMPONENTS = {**ENCODERS, **AGGREGATORS}


def test_a_name_selects_a_component_with_its_defaults():
    settings = ModelSettings(aggregator="max", encoder="none")
    assert settings.aggregator == settings_from(AGGREGATORS["max"])()
    assert settings.encoder.name == "none"
    document = ModelSettings(kind="document", sentence_aggregator="centrality")
    assert document.sentence_aggregator == settings_from(AGGREGATORS["centrality"])()


@pytest.mark.parametrize("kind", KINDS)
def test_settings_survive_a_json_round_trip(kind):
    config = small_config(kind, "centrality", "cnn")
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("kind", KINDS)
def test_settings_can_be_pickled(kind):
    config = small_config(kind, "centrality", "cnn")
    assert pickle.loads(pickle.dumps(config)) == config


def constructor_options(component, *excluded):
    """Return the names and defaults of the options of a constructor."""
    parameters = inspect.signature(component.__init__).parameters.values()
    excluded = {"self", "device", "dtype", *excluded}
    return {p.name: p.default for p in parameters if p.name not in excluded}


def defaults(settings):
    return {key: field.default for key, field in settings.model_fields.items()}


@pytest.mark.parametrize("name", COMPONENTS)
def test_settings_equal_the_arguments_of_the_constructor(name):
    options = constructor_options(COMPONENTS[name], "embed_dim")
    assert defaults(settings_from(COMPONENTS[name])) == {"name": name, **options}


def test_settings_of_embedding_and_head_equal_their_arguments():
    assert defaults(EmbeddingSettings) == constructor_options(
        WordEmbedding, "vocab_size"
    )
    assert defaults(HeadSettings) == constructor_options(
        ClassifierHead, "embed_dim", "num_classes"
    )


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_option_has_a_description(name):
    fields = settings_from(COMPONENTS[name]).model_fields
    assert all(fields[key].description for key in fields if key != "name")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agregator": "max"}, "agregator"),
        ({"aggregator": {"name": "max", "hidden_dim": 3}}, "aggregator.hidden_dim"),
        ({"aggregator": {"name": "centrality", "hiden": 3}}, "aggregator.hiden"),
        ({"embedding": {"width": 3}}, "embedding.width"),
        ({"head": {"num_layers": 3}}, "head.num_layers"),
        ({"aggregator": "maximum"}, mentions("maximum", "'max'", "'mean'")),
        ({"encoder": {"hidden_dim": 3}}, "name"),
        ({"kind": "novel"}, mentions("kind", "'text'", "'document'", "'pair'")),
        ({"embedding": {"embedding_dim": 0}}, mentions("embedding_dim", 1, 0)),
        ({"embedding": {"dropout": 1.0}}, mentions("dropout", 1.0)),
        ({"embedding": {"dropout": -0.1}}, mentions("dropout", -0.1)),
        ({"embedding": {"dropout": float("nan")}}, mentions("dropout", "nan")),
        ({"encoder": {"name": "bilstm", "num_layers": 0}}, "num_layers"),
        ({"encoder": {"name": "cnn", "kernel_sizes": []}}, "kernel_sizes"),
        ({"encoder": {"name": "cnn", "kernel_sizes": [3, 0]}}, "kernel_sizes"),
        (
            {"encoder": {"name": "transformer", "hidden_dim": 9, "num_heads": 3}},
            mentions("hidden_dim", "even", "num_heads"),
        ),
        (
            {"encoder": {"name": "transformer", "hidden_dim": 10, "num_heads": 4}},
            mentions("hidden_dim", "even", "num_heads"),
        ),
        (
            {"aggregator": {"name": "centrality", "norm": "max"}},
            mentions("norm", "'sum'", "'l2'"),
        ),
        ({"sentence_aggregator": "max"}, mentions("kind", "'document'")),
        (
            {"kind": "pair", "sentence_encoder": "none"},
            mentions("kind", "'document'"),
        ),
    ],
)
def test_invalid_settings_are_named_in_the_error(changes, message):
    with pytest.raises(ValidationError) as caught:
        ModelSettings.model_validate(changes)
    assert re.search(message, first_problem(caught.value))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ("one",)}, mentions("labels", 2)),
        ({"labels": ("a", "b", "a")}, mentions("labels", ("a", "b", "a"))),
        ({"vocab_size": 0}, "vocab_size"),
        ({"max_words": 0}, "max_words"),
        ({"words": 3}, "words"),
    ],
)
def test_invalid_configurations_are_named_in_the_error(changes, message):
    valid = {"settings": ModelSettings(), "vocab_size": 9, "labels": LABELS}
    ModelConfig.model_validate(valid)
    with pytest.raises(ValidationError) as caught:
        ModelConfig.model_validate(valid | changes)
    assert re.search(message, first_problem(caught.value))


def test_all_settings_are_frozen_and_forbid_unknown_keys():
    defined = [
        cls
        for cls in vars(config_module).values()
        if isinstance(cls, type) and issubclass(cls, Settings)
    ]
    derived = [
        EmbeddingSettings,
        HeadSettings,
        *map(settings_from, COMPONENTS.values()),
    ]
    for cls in defined + derived:
        assert cls.model_config["frozen"]
        assert cls.model_config["extra"] == "forbid"
