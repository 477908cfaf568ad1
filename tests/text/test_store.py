import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from perron_tests.errors import mentions

from perron.errors import DataError
from perron.text.cache import facts_of, key_of, stored

SCHEMA = pa.schema([("text", pa.string()), ("line", pa.int32())])


def rows(count=2500):
    return ({"text": f"text {i}", "line": i, "other": None} for i in range(count))


def never():
    raise AssertionError("the rows were read again")
    yield


def test_rows_come_back_in_order_with_their_facts(tmp_path):
    data = stored(rows(), SCHEMA, "k", tmp_path, lambda: {"skipped": 3})
    assert data["line"][:] == list(range(2500))
    assert data[2499] == {"text": "text 2499", "line": 2499}
    assert facts_of(data) == {"skipped": 3}
    assert data.cache_files[0]["filename"] == str(tmp_path / "k.arrow")


def test_what_is_there_is_not_read_again(tmp_path):
    stored(rows(), SCHEMA, "k", tmp_path, lambda: {"skipped": 3})
    again = stored(never(), SCHEMA, "k", tmp_path, lambda: {"skipped": 0})
    assert len(again) == 2500
    assert facts_of(again) == {"skipped": 3}


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.999])
def test_a_broken_file_is_written_again(tmp_path, keep):
    stored(rows(), SCHEMA, "k", tmp_path)
    path = tmp_path / "k.arrow"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) if keep < 1 else keep])
    assert len(stored(rows(), SCHEMA, "k", tmp_path)) == 2500
    assert path.read_bytes() == whole


def test_a_stream_that_ends_well_but_early_is_written_again(tmp_path):
    with pa.ipc.new_stream(str(tmp_path / "k.arrow"), SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(list(rows(7)), SCHEMA))
    assert len(stored(rows(), SCHEMA, "k", tmp_path)) == 2500


def test_an_error_in_the_middle_leaves_nothing_behind(tmp_path):
    def failing():
        yield from rows(1500)
        raise DataError("broken")

    with pytest.raises(DataError, match="broken"):
        stored(failing(), SCHEMA, "k", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_two_may_write_the_same_at_once(tmp_path):
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(stored, rows(), SCHEMA, "k", tmp_path) for _ in range(4)]
    assert [len(job.result()) for job in jobs] == [2500] * 4
    assert os.listdir(tmp_path) == ["k.arrow"]


def test_a_folder_that_cannot_be_made_is_an_error_with_advice(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=mentions(tmp_path / "file", "PERRON_CACHE")):
        stored(rows(), SCHEMA, "k", tmp_path / "file" / "cache")


def test_the_key_changes_with_the_settings_and_with_the_file(write):
    path = write("data", "0 a\n")
    keys = [
        key_of({"skip_invalid": False}, [path]),
        key_of({"skip_invalid": True}, [path]),
    ]
    os.utime(path, ns=(1, 1))
    keys.append(key_of({"skip_invalid": False}, [path]))
    path.write_text("0 a\n1 b\n")
    os.utime(path, ns=(1, 1))
    keys.append(key_of({"skip_invalid": False}, [path]))
    assert len(set(keys)) == 4
    assert key_of({"skip_invalid": False}, [path]) == keys[-1]


PEAK = r"""
import re, sys
from pathlib import Path
from perron.text.datasets import load_data
from perron.text.settings import DataSettings
splits = load_data(DataSettings(format="stars", train=sys.argv[1]))
# Not getrusage: its peak is inherited from the process that started this one.
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]
print(len(splits.train), peak)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_memory_does_not_grow_with_the_file(tmp_path):
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
    # 54 MB more to read; 5 MB more were in memory at the peak.
    assert peaks[1] - peaks[0] < 12
