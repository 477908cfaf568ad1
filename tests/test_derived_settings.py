"""Tests of settings derived from constructors."""

import subprocess
import sys
from collections.abc import Mapping
from typing import Annotated, Literal

import pytest
import torch
from perron_tests.errors import mentions
from pydantic import Field, ValidationError
from torch import nn

from perron import CentralityPool
from perron.models import ModelSettings
from perron.registry import settings_from


class Options:
    """Component with options of all kinds.

    Args:
        embed_dim: Width.
        count (int): Number of things,
            over two lines.
    """

    recipe_name = "options"

    def __init__(
        self,
        embed_dim: int,
        count: int,
        share: Annotated[float, Field(gt=0)] = 0.5,
        kind: Literal["a", "b"] = "a",
        part: str | Mapping[str, int] | nn.Module = "c",
        module: nn.Module | None = None,
        given: nn.Module = nn.ReLU(),  # noqa: B008
        sizes: tuple[int, ...] = (1, 2),
        untyped=3,
        device=None,
        dtype=None,
    ) -> None:
        self.weight = torch.empty(embed_dim, embed_dim, device=device)
        if self.weight.device.type != "meta":
            raise AssertionError("memory was allocated")
        if count > 3:
            raise ValueError(f"count must be at most 3, got {count}.")
        if count < 0:
            self.weight.sum().item()


class TestSettingsFrom:
    def test_fields_are_the_options_that_a_recipe_can_contain(self):
        fields = settings_from(Options).model_fields
        assert list(fields) == [
            "name",
            "count",
            "share",
            "kind",
            "part",
            "module",
            "sizes",
            "untyped",
        ]
        assert fields["count"].is_required()
        assert fields["count"].description == "Number of things, over two lines."
        assert fields["share"].description is None

    def test_values_are_validated_by_annotations_and_constructor(self):
        settings = settings_from(Options)
        values = settings(count="2", part={"x": 1}, sizes=[3])
        assert (values.count, values.part, values.sizes) == (2, {"x": 1}, (3,))
        for invalid, message in (
            ({}, "count"),
            ({"count": "many"}, "count"),
            ({"count": 1, "share": 0}, "share"),
            ({"count": 1, "kind": "c"}, "kind"),
            ({"count": 1, "part": {"x": "y"}}, "part"),
            ({"count": 1, "module": nn.ReLU()}, "module"),
            ({"count": 1, "given": nn.ReLU()}, "given"),
            ({"count": 1, "embed_dim": 3}, "embed_dim"),
            ({"count": 4}, r"count.*\b3\b.*\b4\b"),
        ):
            with pytest.raises(ValidationError, match=message):
                settings(**invalid)

    def test_a_constructor_that_reads_tensor_values_is_not_validated(self):
        assert settings_from(Options)(count=-1).count == -1

    def test_the_class_is_cached_and_the_random_state_is_not_changed(self):
        assert settings_from(CentralityPool) is settings_from(CentralityPool)
        torch.manual_seed(3)
        want = torch.rand(2)
        torch.manual_seed(3)
        ModelSettings(encoder="transformer", aggregator="dynamic-routing")
        assert torch.equal(torch.rand(2), want)

    def test_options_must_have_names(self):
        class Loose(Options):
            def __init__(self, embed_dim, **options):
                pass

        with pytest.raises(TypeError, match=mentions("Loose", "options")):
            settings_from(Loose)

    def test_a_required_option_must_have_a_type_for_recipes(self):
        class Modular(Options):
            def __init__(self, embed_dim: int, part: nn.Module) -> None:
                pass

        with pytest.raises(TypeError, match=mentions("Modular", "part")):
            settings_from(Modular)

    def test_pydantic_is_only_imported_for_settings(self):
        code = (
            "import sys, perron; perron.CentralityPool(4, connectivity='bilinear')\n"
            "print('pydantic' in sys.modules)"
        )
        run = subprocess.run([sys.executable, "-c", code], capture_output=True)
        assert run.stdout.strip() == b"False"
