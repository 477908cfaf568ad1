"""The number of files involved in `perron train --data FILE` stays limited."""

import os
import subprocess
import sys
from pathlib import Path

from perron_tests.training import write_texts

import perron

MAX_FILES = 50
# Runs the command and prints the files of the package whose functions were called.
# Code of functions and comprehensions has the flag CO_OPTIMIZED (1).
SCRIPT = """
import sys, threading

visited = set()

def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_flags & 1:
        visited.add(frame.f_code.co_filename)

threading.setprofile(profile)
sys.setprofile(profile)
from perron.cli import main

try:
    main()
finally:
    sys.setprofile(None)
    print(*visited, sep="\\n")
"""


def test_training_on_a_file_visits_few_files(tmp_path):
    data = write_texts(tmp_path / "texts.csv")
    command = [sys.executable, "-c", SCRIPT, "train", "--data", data]
    command += ["--out", tmp_path / "run", "--quiet", "--set", "training.max_epochs=1"]
    printed = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PERRON_CACHE": str(tmp_path / "cache")},
    ).stdout
    package = Path(perron.__file__).parent
    visited = {
        str(path.relative_to(package))
        for path in map(Path, printed.splitlines())
        if path.is_relative_to(package)
    }
    assert "training/loop.py" in visited  # the profiler sees the package
    assert len(visited) <= MAX_FILES, " ".join(sorted(visited))
