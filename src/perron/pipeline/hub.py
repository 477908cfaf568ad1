"""Models on Hugging Face's hub."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from perron.errors import DataError

HUB = "hub:"  # before a name, where a folder could stand as well
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(name: str) -> bool:
    """Return if a name has the form ``owner/model``."""
    return _NAME.fullmatch(name) is not None


def download_model(name: str, files: Sequence[str], **download: Any) -> Path:
    """Return the folder that holds these files of a model, and no others.

    Args:
        name: of the model, as in ``owner/model``.
        files: which of its files are wanted.
        download: revision, token, cache_dir, force_download, local_files_only.
    """
    where = HUB + name
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), **download))
    except HFValidationError as error:
        raise DataError(f"is no name of a model ({error})", where) from error
    except GatedRepoError as error:
        raise DataError("is gated: log in first, with hf auth login", where) from error
    except RevisionNotFoundError as error:
        raise DataError("has no such revision", where) from error
    except RepositoryNotFoundError as error:
        raise DataError(
            "there is no such model, or you have no right to it: hf auth login",
            where,
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        problem = str(error).strip().splitlines()[0]
        raise DataError(f"cannot be downloaded: {problem}", where) from error
