"""Triton kernels compile for GPUs, without one, within the resources planned for."""

import importlib.util
import json

import pytest
from perron_tests.plain import run_plain

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="needs triton, which is available for Linux",
)

MAX_SHARED = 48 * 1024


def compile_all(target: str, **variables: str) -> list[dict]:
    lines = run_plain("compile_triton.py", target, TRITON_INTERPRET="0", **variables)
    return [json.loads(line) for line in lines.splitlines()]


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx90a", "gfx942"])
def test_every_kernel_compiles_without_spills_and_keeps_small_numbers(target):
    rows = compile_all(target)
    assert {row["module"] for row in rows} == {"gth_triton", "pair_scores_triton"}
    for row in rows:
        print(row)
        name = (row["kernel"], row["constants"])
        assert row["registers"] > 0, name
        assert row["spills"] == 0, name
        assert row["shared"] <= MAX_SHARED, name
        assert not row["flushes"], name
