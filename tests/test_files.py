import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from perron_tests.errors import mentions

from perron.errors import DataError
from perron.files import FolderLockedError, atomic_write, lock_folder, make_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_only_the_file_itself_is_written(tmp_path):
    atomic_write(tmp_path / "a.bin", b"\x00\xff")
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\xff"
    atomic_write(tmp_path / "a.bin", b"")
    assert (tmp_path / "a.bin").read_bytes() == b""
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_keeps_the_previous_file(tmp_path, monkeypatch, failing):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(DataError, match=mentions(path, "No space left")) as got:
        atomic_write(path, b"new")
    assert got.value.path == path
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_an_interrupted_write_keeps_the_previous_file(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(b"old")

    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        atomic_write(tmp_path / "a.txt", b"new")
    assert (tmp_path / "a.txt").read_bytes() == b"old"
    assert names(tmp_path) == ["a.txt"]


def test_the_content_is_flushed_before_the_rename(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda *a: events.append("fsync") or fsync(*a))
    monkeypatch.setattr(
        os, "replace", lambda *a, **k: events.append("replace") or replace(*a, **k)
    )
    atomic_write(tmp_path / "a.txt", b"new")
    assert events == ["fsync", "replace"]


def test_a_missing_folder_or_a_folder_as_the_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match=mentions(tmp_path / "missing", "folder")):
        atomic_write(tmp_path / "missing" / "a.txt", b"")
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(DataError, match=mentions(tmp_path / "a.txt", "folder")):
        atomic_write(tmp_path / "a.txt", b"")
    assert names(tmp_path) == ["a.txt"]


def test_folders_are_created_with_their_parents(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataError, match=mentions(tmp_path / "file", "folder")):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ({}, "is invalid"),
        ({"path": "a.csv"}, "a.csv: is invalid"),
        ({"path": "a.csv", "line": 3}, "a.csv, line 3: is invalid"),
    ],
)
def test_a_data_error_starts_with_its_location(location, message):
    assert str(DataError("is invalid", **location)) == message


def test_the_target_of_a_symbolic_link_is_written(tmp_path):
    (tmp_path / "real.txt").write_bytes(b"old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    atomic_write(tmp_path / "link.txt", b"new")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_bytes() == b"new"


def test_permissions_are_kept(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    path.chmod(0o600)
    atomic_write(path, b"new")
    assert path.stat().st_mode & 0o777 == 0o600


def test_only_regular_files_are_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=mentions(tmp_path / "pipe", "file")):
        atomic_write(tmp_path / "pipe", b"new")
    assert (tmp_path / "pipe").is_fifo()


HOLD_LOCK = """
import sys
from pathlib import Path
from perron.files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def other_process(folder):
    """Start a process that holds the lock until its standard input is closed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "locked\n"
        yield process


def test_a_folder_can_be_locked_by_one_process_at_a_time(tmp_path):
    with other_process(tmp_path) as process:
        with (
            pytest.raises(FolderLockedError, match="another process") as caught,
            lock_folder(tmp_path),
        ):
            pytest.fail("the lock is held twice")
        assert caught.value.path == tmp_path
        with lock_folder(tmp_path, "other.lock"):
            pass
        process.stdin.close()
        assert process.wait(60) == 0
        with lock_folder(tmp_path):
            pass


def test_the_lock_of_a_killed_process_is_released(tmp_path):
    with other_process(tmp_path) as process:
        process.kill()
        process.wait(60)
        with lock_folder(tmp_path):
            pass


def test_a_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="inside"), lock_folder(tmp_path):
        raise ValueError("inside")
    with lock_folder(tmp_path), pytest.raises(FolderLockedError), lock_folder(tmp_path):
        pytest.fail("the lock is held twice in one process")


def test_a_folder_and_a_symbolic_link_to_it_share_the_lock(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    with other_process(tmp_path / "link"), pytest.raises(FolderLockedError):  # noqa: SIM117
        with lock_folder(tmp_path / "real"):
            pytest.fail("the lock is held twice")


def test_a_lock_does_not_change_other_files(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / ".lock").write_text("from an earlier version")
    with lock_folder(tmp_path):
        assert names(tmp_path) == [".lock", "a.txt"]
    assert names(tmp_path) == [".lock", "a.txt"]
    assert (tmp_path / "a.txt").read_text() == "a"


def test_a_missing_folder_cannot_be_locked(tmp_path):
    with (
        pytest.raises(DataError, match="missing: folder does not exist"),
        lock_folder(tmp_path / "missing"),
    ):
        pytest.fail("nothing was locked")
