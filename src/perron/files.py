"""Files that are whole or not there."""

import os
from pathlib import Path

from perron.errors import DataError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it.

    The content is on the disk before the name is, so that a file of this name is whole
    even after a loss of power; what was there before stays until then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise DataError(
            f"could not be written ({error.strerror}); "
            "what was there before is as it was. Make room or choose another folder",
            path,
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
