"""How much does `import perron` cost beyond `import torch`?

Both imports are timed in fresh interpreters, in turns. Prints the medians in seconds
and their difference.

    python benchmarks/import_time.py [--repeats 9]
"""

import argparse
import statistics
import subprocess
import sys
import time


def seconds(code: str) -> float:
    """Return the time that a fresh interpreter takes to run the code."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    codes = ["import torch", "import torch, perron"]
    for code in codes:
        seconds(code)  # warms the page cache
    times = [[seconds(code) for code in codes] for _ in range(repeats)]
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    for code, median in zip(codes, medians, strict=True):
        print(f"{code:22} {median:.2f} s")
    print(f"{'difference':22} {medians[1] - medians[0]:.2f} s")


if __name__ == "__main__":
    main()
