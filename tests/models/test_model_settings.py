import inspect

import pytest
from perron_tests.models import KINDS, LABELS, small_config
from pydantic import ValidationError

from perron.layers import ClassifierHead, WordEmbedding
from perron.models import ModelConfig, ModelSettings
from perron.models import config as all_settings
from perron.models.classifiers import AGGREGATORS, ENCODERS
from perron.models.config import (
    CentralitySettings,
    EmbeddingSettings,
    HeadSettings,
    MaxSettings,
    Settings,
)

BY_NAME = {
    cls.model_fields["name"].default: cls
    for cls in vars(all_settings).values()
    if isinstance(cls, type) and "name" in getattr(cls, "model_fields", {})
}


def test_a_name_alone_stands_for_the_part_as_it_comes():
    settings = ModelSettings(aggregator="max", encoder="none")
    assert settings.aggregator == MaxSettings()
    assert settings.encoder.name == "none"
    document = ModelSettings(kind="document", sentence_aggregator="centrality")
    assert document.sentence_aggregator == CentralitySettings()


@pytest.mark.parametrize("kind", KINDS)
def test_settings_survive_json(kind):
    config = small_config(kind, "centrality", "cnn")
    assert ModelConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("name", [*ENCODERS, *AGGREGATORS])
def test_every_setting_is_an_argument_with_the_same_default(name):
    part = (ENCODERS | AGGREGATORS)[name]
    arguments = inspect.signature(part.__init__).parameters
    for key, field in BY_NAME[name].model_fields.items():
        if key != "name":
            assert arguments[key].default == field.default


@pytest.mark.parametrize(
    ("settings", "part"),
    [(EmbeddingSettings, WordEmbedding), (HeadSettings, ClassifierHead)],
)
def test_so_it_is_for_embedding_and_head(settings, part):
    arguments = inspect.signature(part.__init__).parameters
    for key, field in settings.model_fields.items():
        if arguments[key].default is not inspect.Parameter.empty:
            assert arguments[key].default == field.default


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"agregator": "max"}, "agregator"),
        ({"aggregator": {"name": "max", "hidden": 3}}, "aggregator.max.hidden"),
        ({"aggregator": {"name": "centrality", "hiden": 3}}, "centrality.hiden"),
        ({"embedding": {"width": 3}}, "embedding.width"),
        ({"head": {"layers": 3}}, "head.layers"),
        ({"aggregator": "maximum"}, "'max', 'mean'"),
        ({"encoder": {"hidden": 3}}, "name"),
        ({"kind": "novel"}, "'text', 'document' or 'pair'"),
        ({"embedding": {"dim": 0}}, "greater than or equal to 1"),
        ({"embedding": {"dropout": 1.0}}, "less than 1"),
        ({"embedding": {"dropout": -0.1}}, "greater than or equal to 0"),
        ({"embedding": {"dropout": float("nan")}}, "dropout"),
        ({"encoder": {"name": "bilstm", "layers": 0}}, "layers"),
        ({"encoder": {"name": "cnn", "widths": []}}, "at least 1 item"),
        ({"encoder": {"name": "cnn", "widths": [3, 0]}}, "widths"),
        (
            {"encoder": {"name": "transformer", "hidden": 9, "heads": 3}},
            "even and a multiple of heads",
        ),
        (
            {"encoder": {"name": "transformer", "hidden": 10, "heads": 4}},
            "even and a multiple of heads",
        ),
        ({"aggregator": {"name": "centrality", "norm": "max"}}, "'sum' or 'l2'"),
        ({"sentence_aggregator": "max"}, "are for kind = 'document'"),
        ({"kind": "pair", "sentence_encoder": "none"}, "are for kind = 'document'"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(given, message):
    with pytest.raises(ValidationError, match=message):
        ModelSettings.model_validate(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": ("one",)}, "at least 2 items"),
        ({"labels": ("a", "b", "a")}, r"labels must differ, but came as \('a', 'b'"),
        ({"vocabulary": 0}, "vocabulary"),
        ({"max_words": 0}, "max_words"),
        ({"words": 3}, "words"),
    ],
)
def test_an_impossible_configuration_is_refused(given, message):
    possible = {"settings": ModelSettings(), "vocabulary": 9, "labels": LABELS}
    ModelConfig.model_validate(possible)
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(possible | given)


def test_all_settings_are_frozen_and_closed():
    for cls in vars(all_settings).values():
        if isinstance(cls, type) and issubclass(cls, Settings):
            assert cls.model_config["frozen"]
            assert cls.model_config["extra"] == "forbid"
