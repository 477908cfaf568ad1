"""Where models are: folders, and models on the Hugging Face hub."""

import re
from collections import Counter
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

from perron.errors import DataError, SettingsError
from perron.models.io import FILES

HUB = "hub:"  # prefix of a name, where a folder is possible too
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def hub_name(name: str | Path) -> str | None:
    """Return ``owner/model`` if a name is of a model on the hub; else it is a folder.

    This is the only place that decides; `load` documents the rule.
    """
    text = name.as_posix() if isinstance(name, Path) else name
    if text.startswith(HUB):
        return text.removeprefix(HUB)
    is_bare = isinstance(name, str) and _NAME.fullmatch(name) is not None
    return text if is_bare and not Path(name).parent.exists() else None


def find_model(name: str | Path, **download: Any) -> tuple[Path, str]:
    """Return the folder of a model, downloaded if need be, and what to call it.

    Args:
        name: Folder of a model, or name of a model on the hub; see `load`.
        download: Options of huggingface_hub; see `Pipeline.from_pretrained`.
    """
    on_hub = hub_name(name)
    if on_hub is not None:
        return download_model(on_hub, FILES, **download), on_hub
    folder = Path(name)
    if isinstance(name, str) and _NAME.fullmatch(name) and not folder.exists():
        raise DataError(
            f"there is no such folder. For a model on the hub, write {HUB}{name}", name
        )
    return folder, folder.resolve().name


def download_model(name: str, files: Sequence[str], **download: Any) -> Path:
    """Download some files of a model and return their folder.

    Args:
        name: Name of the model, such as ``owner/model``.
        files: Names of the files.
        download: revision, token, cache_dir, force_download, local_files_only.
    """
    where = HUB + name
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), **download))
    except HFValidationError as error:
        raise DataError(f"is not a valid name of a model ({error})", where) from error
    except GatedRepoError as error:
        raise DataError("is gated: log in first, with hf auth login", where) from error
    except RevisionNotFoundError as error:
        raise DataError("has no such revision", where) from error
    except RepositoryNotFoundError as error:
        raise DataError(
            "there is no such model, or you have no access to it: hf auth login",
            where,
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        problem = str(error).strip().splitlines()[0]
        raise DataError(f"cannot be downloaded: {problem}", where) from error


def names_of(folders: Sequence[str | Path]) -> list[str]:
    """Return a short name for each folder: ``a/x`` and ``b/x``, but ``y`` for c/y."""
    parts = [Path(folder).resolve().parts for folder in folders]
    repeated = [path for path, count in Counter(parts).items() if count > 1]
    if repeated:
        raise SettingsError(f"{Path(*repeated[0])}: the same model is named twice")

    def name(path: tuple[str, ...]) -> str:
        for count in range(1, len(path) + 1):
            end = path[-count:]
            if sum(other[-count:] == end for other in parts) == 1:
                break
        return "/".join(end)

    return [name(path) for path in parts]
