"""What limits the Triton kernels on an A100? A calculation, not a measurement.

The kernels are compiled for sm_80, and the PTX interpreter in tests/ executes them for
one text. It counts, for a forward and backward pass,

    launches      kernels that are started
    MB            bytes of global memory that are read or written, once per launch
    MFLOP         operations in float32 and float64; a fused multiply-add counts as two
    instructions  executed by warps, in millions, scaled from PTX to machine code

and multiplies by the number of texts. The times are lower bounds for each of these on
an A100 (SXM, 40 GB), according to its data sheet: 1,555 GB/s, 19.5 TFLOPS in float32
and 9.7 in float64, and 4 instructions per cycle (1.41 GHz) on each of 108 processors,
at most one of them per warp. A launch is assumed to take 5 us.

A GPU is slower than the largest of these times: instructions wait for each other,
caches are limited, and short kernels do not fill the processors. No time here was
measured.

    python benchmarks/roofline.py [--json FILE] [--quick]
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from perron.kernels import gth_triton, pair_scores_triton
from timing import Report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
from perron_tests import ptx, ptx_launch
from triton.knobs import nvidia

SHAPES = [(128, 20), (640, 25), (64, 50), (32, 200), (8, 400)]
HIDDEN = 50

BYTES_PER_US = 1555e3
FLOP_PER_US = {"f32": 19.5e6, "f64": 9.7e6}
WARP_INSTRUCTIONS_PER_US = 1410
INSTRUCTIONS_PER_US = 108 * 4 * 1410
LAUNCH_US = 5

FLOPS = {"add": 1, "sub": 1, "mul": 1, "div": 1, "fma": 2, "max": 1, "min": 1}


def solver(words: int) -> None:
    """Run the solver on one text."""
    edges = torch.randn(1, words, words).softmax(-2)
    mask = torch.ones(1, words, dtype=torch.bool)
    _, factors, _ = gth_triton.forward(edges, mask, True)
    gth_triton.backward(torch.randn(1, words), factors, mask)


def pair_scores(words: int) -> None:
    """Run the pair scores of one text."""
    x, w = torch.randn(words, 2, 1, HIDDEN), torch.randn(1, HIDDEN)
    mask = torch.ones(1, words, dtype=torch.bool)
    grad = pair_scores_triton.forward(x, w, mask, "tanh")
    pair_scores_triton.backward(grad, x, w, mask, "tanh")


CASES = {"solver": solver, "pair scores": pair_scores}


class Count:
    """Counts of one call; use as a context manager."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.instructions: list[tuple[int, int]] = []  # and warps, of each launch
        self.launch: Counter[str] = Counter()
        self.ratio = 1.0

    def on_instruction(self, name: str, active: np.ndarray) -> None:
        """Count an instruction."""
        parts = name.split(".")
        if parts[0] in FLOPS and parts[-1] in FLOP_PER_US:
            self.launch[parts[-1]] += FLOPS[parts[0]] * int(active.sum())
        self.launch["instructions"] += int(active.reshape(-1, 32).any(1).sum())

    def on_launch(self, arrays: ptx.Arrays, warps: int) -> None:
        """Add the counts of a launch."""
        memory = arrays.memory
        touched = [memory.reader != ptx.NOBODY, memory.writer != ptx.NOBODY]
        self.launch["bytes"] = int(sum(part.sum() for part in touched))
        self.launch["launches"] = 1
        self.launch["instructions"] = int(self.ratio * self.launch["instructions"])
        self.instructions.append((self.launch["instructions"], warps))
        self.total += self.launch
        self.launch = Counter()

    def on_code(self, text: str) -> str:
        """Record the number of machine instructions per PTX instruction of a kernel."""
        self.ratio = machine_instructions(text) / len(ptx.parse(text)[0])
        return text

    def __enter__(self) -> "Count":
        ptx.on_instruction, ptx.on_launch = self.on_instruction, self.on_launch
        ptx_launch.edit = self.on_code
        return self

    def __exit__(self, *_: object) -> None:
        ptx.on_instruction = ptx.on_launch = None


_machine_instructions: dict[str, int] = {}


def machine_instructions(text: str) -> int:
    """Return the number of instructions that NVIDIA's assembler generates from PTX."""
    if text not in _machine_instructions:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
            source.write_text(text)
            assemble = [nvidia.ptxas.path, "-arch=sm_80", "-O3", source, "-o", target]
            subprocess.run(assemble, check=True, capture_output=True)
            show = [nvidia.nvdisasm.path, "-c", target]
            listing = subprocess.run(show, check=True, capture_output=True, text=True)
        lines = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", listing.stdout, re.M)
        useful = [line for line in lines if not re.match(r"NOP|BRA `\(\.L", line)]
        _machine_instructions[text] = len(useful)
    return _machine_instructions[text]


def estimate(name: str, texts: int, words: int) -> dict:
    """Return the counts and the least times of a batch."""
    with Count() as count:
        CASES[name](words)
    one = count.total
    issue = [
        max(
            texts * total / INSTRUCTIONS_PER_US,
            total / warps / WARP_INSTRUCTIONS_PER_US,
        )
        for total, warps in count.instructions
    ]
    times = {
        "memory": texts * one["bytes"] / BYTES_PER_US,
        "arithmetic": sum(texts * one[t] / rate for t, rate in FLOP_PER_US.items()),
        "instructions": sum(issue),
        "launches": LAUNCH_US * one["launches"],
    }
    return {
        "operation": name,
        "shape": f"{texts} x {words}",
        "launches": one["launches"],
        "MB": texts * one["bytes"] / 1e6,
        "MFLOP float32": texts * one["f32"] / 1e6,
        "MFLOP float64": texts * one["f64"] / 1e6,
        "M instructions": texts * one["instructions"] / 1e6,
        **{f"{limit} us": time for limit, time in times.items()},
        "limit": max(times, key=times.__getitem__),
    }


def main() -> None:
    """Print the estimates."""
    report = Report(__doc__, budget=0)
    ptx_launch.install()
    counts = {"shape": "", "launches": "", "MB": ".1f", "MFLOP float32": ".0f"}
    counts |= {"MFLOP float64": ".0f", "M instructions": ".1f"}
    limits = ("memory", "arithmetic", "instructions", "launches")
    times = {"shape": "", **{f"{limit} us": ".0f" for limit in limits}, "limit": ""}
    for name in CASES:
        shapes = SHAPES[:1] if report.quick else SHAPES
        rows = [estimate(name, texts, words) for texts, words in shapes]
        report.add(f"{name}, counted", rows, counts)
        report.add(f"{name}, least times, calculated", rows, times)
    report.finish(["These are calculated lower bounds. None was measured on a GPU."])


if __name__ == "__main__":
    main()
