"""Several models at once, told apart by the shortest names that do."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from perron.errors import SettingsError
from perron.pipeline.pipeline import Pipeline, load


def load_all(folders: Sequence[str | Path]) -> list[Pipeline]:
    """Load models; each is named by as many last parts of its path as it takes."""
    loaded = [load(folder) for folder in folders]
    for pipeline, name in zip(loaded, names_of(folders), strict=True):
        pipeline.name = name
    return loaded


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
