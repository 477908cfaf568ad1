"""How fast are word vectors read, and with how much memory?

A generated GloVe text file of 1 GB (300 values per word, about 400,000 words) is read
by `perron.text.vectors.read_vectors` and by gensim's `load_word2vec_format`. Each run
is a separate process, and the file is in the page cache. gensim cannot select words, so
its time does not depend on how many are needed. Because gensim is slow, it reads only
the first tenth of the file, and its time and memory are multiplied by ten (it reads
line by line), unless the budget is 400 seconds or more. Compiling Perron's kernels,
which happens once per machine, is not counted. The overhead is the peak memory in
addition to the imported libraries and the result (the matrix and the words).

    python benchmarks/vectors.py [--json FILE] [--budget 60] [--quick]
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from timing import Report, print_peak

DIM = 300
BLOCK = 1000  # distinct rows; the file repeats them with different words
SELECTED = 20_000
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]


def word(number: int) -> str:
    """Return a pronounceable word, unique for each number."""
    syllables = []
    while number or len(syllables) < 2:
        number, index = divmod(number, len(SYLLABLES))
        syllables.append(SYLLABLES[index])
    return "".join(syllables)


def write_file(path: Path, size: int) -> int:
    """Write a file of about ``size`` bytes and return its number of words."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(0, 0.4, (BLOCK, DIM))
    rows = [" " + " ".join(f"{x:.5f}" for x in row) + "\n" for row in numbers]
    count = 0
    with path.open("w") as file:
        while file.tell() < size:
            file.writelines(word(count + k) + row for k, row in enumerate(rows))
            count += BLOCK
    return count


def make_reader(
    name: str, path: str, count: int, selected: int
) -> Callable[[], object]:
    """Return a function that reads the file, after importing and compiling."""
    if name == "gensim":
        from gensim.models import KeyedVectors

        return lambda: KeyedVectors.load_word2vec_format(
            path, binary=False, no_header=True, limit=selected
        )
    from perron.text.vectors import read_vectors

    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.txt")
        small.write_text("a 0.1\n")
        read_vectors(small, {"a"})  # load the code
    numbers = range(0, count, count // selected)[:selected]
    words = {word(number) for number in numbers}
    return lambda: read_vectors(path, words)


def run(*case: object) -> tuple[float, float]:
    """Return seconds and peak megabytes of a case in a separate process."""
    command = [sys.executable, __file__, "--peak", *map(str, case)]
    output = subprocess.run(command, capture_output=True, check=True).stdout.split()
    return float(output[1]), float(output[0])


def measure(path: Path, size: int, budget: float) -> list[dict]:
    """Return a row for each number of words and one for gensim."""
    count = write_file(path, size)
    factor = 1 if budget >= 400 else 10
    cases = [("perron", count, 1), ("perron", min(SELECTED, count // 10), 1)]
    rows = []
    for name, words, scale in [*cases, ("gensim", count, factor)]:
        runs = [run(name, path, count, words // scale)]
        while len(runs) < 3 and sum(seconds for seconds, _ in runs) < budget / 10:
            runs.append(run(name, path, count, words // scale))
        seconds = scale * min(seconds for seconds, _ in runs)
        row = {"megabytes": size // 10**6, "reader": name, "words": words}
        row["seconds"] = seconds
        row["MB/s"] = path.stat().st_size / 1e6 / seconds
        row["result MB"] = result_megabytes(words)
        peak = scale * max(peak for _, peak in runs)
        row["overhead MB"] = peak - row["result MB"]
        rows.append(row)
    return rows


def result_megabytes(words: int) -> float:
    """Return the size of the matrix and the list of words."""
    return words * (4 * DIM + 8 + sys.getsizeof(word(words))) / 1e6


def conclusions(rows: list[dict]) -> list[str]:
    """Compare each run with gensim."""
    *ours, gensim = rows
    return [
        f"{row['words']:,} words: {gensim['seconds'] / row['seconds']:.1f} times "
        f"faster than gensim (target: 3), {row['overhead MB']:.0f} MB of overhead "
        "(target: 200)"
        for row in ours
    ]


def main() -> None:
    """Run the benchmark."""
    report = Report(__doc__, budget=60)
    if report.peak:
        name, path = report.peak[:2]
        read = make_reader(name, path, *map(int, report.peak[2:]))
        begin = time.perf_counter()
        print_peak(read)
        print(time.perf_counter() - begin)
        return
    size = 20 * 10**6 if report.quick else 10**9
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder, "vectors.txt"), size, report.budget)
    columns = {"reader": "", "words": "", "seconds": ".2f", "MB/s": ".0f"}
    columns |= {"result MB": ".0f", "overhead MB": ".0f"}
    report.add(f"GloVe text file of {size / 1e6:.0f} MB", rows, columns)
    report.finish(conclusions(rows))


if __name__ == "__main__":
    main()
