"""How fast are word vectors read, and in how much memory?

A generated GloVe text file of 1 GB (300 numbers a word, some 400 000 words) is read by
`perron.text.vectors.read_vectors` and by gensim's `load_word2vec_format`, each run in a
process of its own, the file in the system's cache. gensim cannot be told which words
are wanted, so that its time is the same for any number of them. Being slow, it reads
the first tenth only, and its time and memory are those times ten (it goes by lines),
unless the budget is 400 seconds or more. Compiling Perron's kernels, once on a machine,
is not counted. Memory is the peak above the imported libraries and above what is kept
(the matrix, the words).

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
BLOCK = 1000  # different rows; the file repeats them with different words
WANTED = 20_000
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]


def word(number: int) -> str:
    """Return a word that can be spoken, another one for each number."""
    parts = []
    while number or len(parts) < 2:
        number, syllable = divmod(number, len(SYLLABLES))
        parts.append(SYLLABLES[syllable])
    return "".join(parts)


def write_file(path: Path, size: int) -> int:
    """Write a file of about this many bytes; return how many words it has."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(0, 0.4, (BLOCK, DIM))
    rows = [" " + " ".join(f"{x:.5f}" for x in row) + "\n" for row in numbers]
    count = 0
    with path.open("w") as file:
        while file.tell() < size:
            file.writelines(word(count + k) + row for k, row in enumerate(rows))
            count += BLOCK
    return count


def make_reader(name: str, path: str, count: int, wanted: int) -> Callable[[], object]:
    """Return a function that reads the file once; imports and compiles beforehand."""
    if name == "gensim":
        from gensim.models import KeyedVectors

        return lambda: KeyedVectors.load_word2vec_format(
            path, binary=False, no_header=True, limit=wanted
        )
    from perron.text.vectors import read_vectors

    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "small.txt")
        small.write_text("a 0.1\n")
        read_vectors(small, {"a"})  # code into memory
    spread = range(0, count, count // wanted)[:wanted]
    words = {word(number) for number in spread}
    return lambda: read_vectors(path, words)


def run(*case: object) -> tuple[float, float]:
    """Return seconds and peak megabytes of a case in a process of its own."""
    command = [sys.executable, __file__, "--peak", *map(str, case)]
    output = subprocess.run(command, capture_output=True, check=True).stdout.split()
    return float(output[1]), float(output[0])


def measure(path: Path, size: int, budget: float) -> list[dict]:
    """Return a row for each number of words, and one for gensim."""
    count = write_file(path, size)
    share = 1 if budget >= 400 else 10
    cases = [("perron", count, 1), ("perron", min(WANTED, count // 10), 1)]
    rows = []
    for name, words, part in [*cases, ("gensim", count, share)]:
        runs = [run(name, path, count, words // part)]
        while len(runs) < 3 and sum(seconds for seconds, _ in runs) < budget / 10:
            runs.append(run(name, path, count, words // part))
        seconds = part * min(seconds for seconds, _ in runs)
        row = {"megabytes": size // 10**6, "reader": name, "words": words}
        row["seconds"] = seconds
        row["MB/s"] = path.stat().st_size / 1e6 / seconds
        row["kept"] = kept_megabytes(words)
        row["above"] = part * max(peak for _, peak in runs) - row["kept"]
        rows.append(row)
    return rows


def kept_megabytes(words: int) -> float:
    """Return what a matrix takes, and a list of words."""
    return words * (4 * DIM + 8 + sys.getsizeof(word(words))) / 1e6


def conclusions(rows: list[dict]) -> list[str]:
    """Return what the question comes down to."""
    *ours, gensim = rows
    return [
        f"{row['words']} words: {gensim['seconds'] / row['seconds']:.1f} times faster "
        f"than gensim (asked: 3), {row['above']:.0f} MB above what is kept (asked: 200)"
        for row in ours
    ]


def main() -> None:
    """Measure and print."""
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
    columns |= {"kept": ".0f", "above": ".0f"}
    report.add(f"GloVe text of {size / 1e6:.0f} MB", rows, columns)
    report.finish(conclusions(rows))


if __name__ == "__main__":
    main()
