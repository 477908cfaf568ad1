"""How do time and memory grow with the length of a text?

This benchmark runs a forward and backward pass on one text with states of width 600, in
float32: `CentralityPool` with `connectivity="low_rank"` up to 100,000 words, and with
the paper's network up to 4096 words. The peak is the memory in MB that a separate
process needs in addition to the states. The exponent is fitted to the times of all
lengths, and again to those of 2048 words and more, where the fixed cost of a call
matters less and the data no longer fits into the caches.

    python benchmarks/length.py [--json FILE] [--threads 2] [--budget 60] [--quick]
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from perron import CentralityPool
from timing import Report, interleaved_medians, peak_megabytes, print_peak

DIM = 600
LONG = [256, 1024, 2048, 4096, 16_384, 50_000, 100_000]
LENGTHS = {"low_rank": LONG, "mlp": [n for n in LONG if n <= 4096]}


def make_states(words: int) -> Tensor:
    """Return the states of one text."""
    return torch.randn(1, words, DIM).mul_(0.3).requires_grad_()


def make_step(connectivity: str, states: Tensor) -> Callable[[], None]:
    """Return a function that runs forward and backward once."""
    torch.manual_seed(0)
    pool = CentralityPool(DIM, connectivity=connectivity)

    def step() -> None:
        pool(states).vector.sum().backward()
        states.grad = None
        pool.zero_grad()

    return step


def measure(connectivity: str, lengths: list[int], budget: float) -> list[dict]:
    """Return a row for each length."""
    calls = {
        str(words): make_step(connectivity, make_states(words)) for words in lengths
    }
    seconds = interleaved_medians(calls, repeats=9, budget=budget)
    return [
        {
            "connectivity": connectivity,
            "words": words,
            "milliseconds": 1000 * seconds[str(words)],
            "peak MB": peak_megabytes(__file__, connectivity, words),
        }
        for words in lengths
    ]


def exponent(rows: list[dict], min_words: int) -> float:
    """Return the slope of log time over log words, for ``min_words`` and more."""
    rows = [r for r in rows if r["words"] >= min_words]
    words, times = ([np.log(r[f]) for r in rows] for f in ("words", "milliseconds"))
    return float(np.polyfit(words, times, 1)[0])


def conclusions(rows: list[dict]) -> list[str]:
    """Summarize the growth, and the cost of the longest text."""
    lines = []
    for name in LENGTHS:
        own = [r for r in rows if r["connectivity"] == name]
        if len(own) > 2:
            lines.append(
                f"{name}: time grows with exponent {exponent(own, 256):.2f} overall, "
                f"{exponent(own, 2048):.2f} from 2048 words on"
            )
    last = max(rows, key=lambda r: r["words"])
    seconds, peak = last["milliseconds"] / 1000, last["peak MB"]
    lines.append(f"{last['words']:,} words take {seconds:.2f} s and {peak:.0f} MB")
    return lines


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=60)
    if report.peak:
        connectivity, words = report.peak[0], int(report.peak[1])
        make_step(connectivity, make_states(9))()  # load the code
        step = make_step(connectivity, make_states(words))
        print_peak(partial(step))
        return
    for name, lengths in LENGTHS.items():
        rows = measure(name, lengths[: 2 if report.quick else None], report.budget)
        report.add(name, rows, {"words": "", "milliseconds": ".1f", "peak MB": ".0f"})
    report.finish(conclusions(report.rows))


if __name__ == "__main__":
    main()
