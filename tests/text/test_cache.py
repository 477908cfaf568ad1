import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from perron_tests.errors import mentions

from perron.errors import DataError
from perron.text.cache import cache_key, cached_dataset, read_metadata

SCHEMA = pa.schema([("text", pa.string()), ("line", pa.int32())])


def rows(count=2500):
    return ({"text": f"text {i}", "line": i, "other": None} for i in range(count))


def never():
    raise AssertionError("the rows were read again")
    yield


def test_rows_are_read_back_in_order_with_metadata(tmp_path):
    data = cached_dataset(rows(), SCHEMA, "k", tmp_path, lambda: {"skipped": 3})
    assert data["line"][:] == list(range(2500))
    assert data[2499] == {"text": "text 2499", "line": 2499}
    assert read_metadata(data) == {"skipped": 3}
    assert data.cache_files[0]["filename"] == str(tmp_path / "k.arrow")


def test_a_cached_dataset_is_not_read_again(tmp_path):
    cached_dataset(rows(), SCHEMA, "k", tmp_path, lambda: {"skipped": 3})
    again = cached_dataset(never(), SCHEMA, "k", tmp_path, lambda: {"skipped": 0})
    assert len(again) == 2500
    assert read_metadata(again) == {"skipped": 3}


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.999])
def test_a_corrupt_file_is_rewritten(tmp_path, keep):
    cached_dataset(rows(), SCHEMA, "k", tmp_path)
    path = tmp_path / "k.arrow"
    complete = path.read_bytes()
    size = int(keep * len(complete)) if keep < 1 else keep
    path.write_bytes(complete[:size])
    assert len(cached_dataset(rows(), SCHEMA, "k", tmp_path)) == 2500
    assert path.read_bytes() == complete


def test_an_incomplete_file_is_rewritten(tmp_path):
    with pa.ipc.new_stream(str(tmp_path / "k.arrow"), SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(list(rows(7)), SCHEMA))
    assert len(cached_dataset(rows(), SCHEMA, "k", tmp_path)) == 2500


def test_an_error_while_writing_leaves_no_files(tmp_path):
    def failing():
        yield from rows(1500)
        raise DataError("broken")

    with pytest.raises(DataError, match="broken"):
        cached_dataset(failing(), SCHEMA, "k", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_concurrent_writes_of_the_same_key_are_safe(tmp_path):
    with ThreadPoolExecutor() as pool:
        jobs = [
            pool.submit(cached_dataset, rows(), SCHEMA, "k", tmp_path) for _ in range(4)
        ]
    assert [len(job.result()) for job in jobs] == [2500] * 4
    assert os.listdir(tmp_path) == ["k.arrow"]


def test_a_cache_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError, match=mentions(tmp_path / "file", "PERRON_CACHE")):
        cached_dataset(rows(), SCHEMA, "k", tmp_path / "file" / "cache")


def test_the_key_changes_with_the_values_and_with_the_file(write):
    path = write("data", "0 a\n")
    keys = [
        cache_key({"skip_invalid": False}, [path]),
        cache_key({"skip_invalid": True}, [path]),
    ]
    os.utime(path, ns=(1, 1))
    keys.append(cache_key({"skip_invalid": False}, [path]))
    path.write_text("0 a\n1 b\n")
    os.utime(path, ns=(1, 1))
    keys.append(cache_key({"skip_invalid": False}, [path]))
    assert len(set(keys)) == 4
    assert cache_key({"skip_invalid": False}, [path]) == keys[-1]


PEAK = r"""
import re, sys
from pathlib import Path
from perron.text.datasets import load_data
from perron.text.settings import DataSettings
splits = load_data(DataSettings(format="stars", train=sys.argv[1]))
# Not getrusage, whose peak is inherited from the parent process.
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
print(len(splits.train), peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_memory_use_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for megabytes in (6, 60):
        path = tmp_path / f"{megabytes}.txt.ss"
        line = (
            "user\t\tproduct\t\t{}\t\t"
            + "some words of a review . <sssss> " * 60
            + "\n"
        )
        with path.open("w") as file:
            file.writelines(line.format(1 + i % 5) for i in range(megabytes * 500))
        assert path.stat().st_size > megabytes * 950_000
        run = subprocess.run(
            [sys.executable, "-c", PEAK, str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        count, kilobytes = map(int, run.stdout.split())
        assert count == megabytes * 400
        peaks.append(kilobytes / 1000)
    # The file is 54 MB larger; the measured peak was 5 MB higher.
    assert peaks[1] - peaks[0] < 12
