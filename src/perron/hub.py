"""Model cards, and locating and downloading models on the Hugging Face Hub."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perron.errors import DataError, SettingsError
from perron.files import markdown_table
from perron.models import ModelConfig
from perron.models.config import FILES, HuggingFaceSettings

if TYPE_CHECKING:
    from huggingface_hub import PyTorchModelHubMixin


class Score(NamedTuple):
    """Value of a metric on one split of a dataset.

    Attributes:
        data: Name of the dataset.
        part: Name of the split: train, dev or test.
        metric: Identifier of the metric.
        title: Display name of the metric.
        value: Value of the metric.
        text: Formatted value.
    """

    data: str
    part: str
    metric: str
    title: str
    value: float
    text: str


def model_card(
    config: ModelConfig,
    facts: Mapping[str, object] | None = None,
    scores: Sequence[Score] = (),
) -> str:
    """Return a model card in Markdown, with the metadata that the Hub reads.

    Args:
        config: Configuration of the model.
        facts: Additional rows for the table.
        scores: Scores for the table and for the evaluation results on the Hub.
    """
    settings = config.settings
    parts = {
        "kind": settings.kind,
        "encoder": settings.encoder.name,
        "aggregator": settings.aggregator.name,
        "classes": ", ".join(config.labels),
        "vocabulary": f"{config.vocab_size} words",
        "truncated to": f"{config.max_words} words"
        + (
            f", {config.max_sentences} sentences" if settings.kind == "document" else ""
        ),
    }
    if config.temperature != 1:
        parts["temperature"] = f"{config.temperature:.3f}, fitted on dev"
    results = {f"{score.part} {score.title}": score.text for score in scores}
    title = f"A {settings.kind} classifier with {settings.aggregator.name} pooling"
    return "\n".join(
        [
            "---",
            _front_matter(config, title, scores),
            "---",
            "",
            f"# {title}",
            "",
            markdown_table(["", ""], _rows(parts | dict(facts or {}) | results)),
            "",
            "```python",
            "import perron",
            "",
            'model = perron.load("path/to/model")',
            'model.predict(["..."])' if settings.kind != "pair" else _PAIR_CALL,
            "```",
            "",
        ]
    )


def _front_matter(config: ModelConfig, title: str, scores: Sequence[Score]) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    settings = config.settings
    tags = ["perron", settings.aggregator.name]
    data = ModelCardData(
        library_name="perron", pipeline_tag="text-classification", tags=tags
    )
    encoder = settings.encoder
    if isinstance(encoder, HuggingFaceSettings) and not Path(encoder.model).exists():
        data.base_model = encoder.model
    if scores:
        data.model_name = title
        data.eval_results = [
            EvalResult(
                task_type="text-classification",
                dataset_type=score.data,
                dataset_name=score.data,
                dataset_split=score.part,
                metric_type=score.metric,
                metric_name=score.title,
                metric_value=round(score.value, 4),
            )
            for score in scores
        ]
    return str(data.to_yaml())


_PAIR_CALL = 'model.predict(["..."], ["..."])'


def _rows(facts: Mapping[str, object]) -> list[list[str]]:
    """Return one row per fact, with line breaks replaced by spaces."""
    return [[" ".join(str(part).split()) for part in fact] for fact in facts.items()]


HUB = "hub:"  # prefix of names that always refer to the Hub
_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def hub_name(name: str | Path) -> str | None:
    """Return ``owner/model`` if the name refers to the Hub, None if it is a folder.

    See `load` for the rule.
    """
    text = name.as_posix() if isinstance(name, Path) else name
    if text.startswith(HUB):
        return text.removeprefix(HUB)
    is_bare = isinstance(name, str) and _NAME.fullmatch(name) is not None
    return text if is_bare and not Path(name).parent.exists() else None


def find_model(name: str | Path, **download: Any) -> tuple[Path, str]:
    """Return the folder and the name of a model, downloading it if necessary.

    Args:
        name: Folder of a model, or name of a model on the Hub; see `load`.
        download: Options of huggingface_hub; see `Pipeline.from_pretrained`.
    """
    on_hub = hub_name(name)
    if on_hub is not None:
        return download_model(on_hub, FILES, **download), on_hub
    folder = Path(name)
    if isinstance(name, str) and _NAME.fullmatch(name) and not folder.exists():
        raise DataError(
            f"folder does not exist. For a model on the Hub, use {HUB}{name}", name
        )
    return folder, folder.resolve().name


def download_model(name: str, files: Sequence[str], **download: Any) -> Path:
    """Download files of a model from the Hub and return their folder.

    Args:
        name: Name of the model, such as ``owner/model``.
        files: Names of the files to download.
        download: Options of `snapshot_download`, such as ``revision`` and ``token``.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = HUB + name
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), **download))
    except HFValidationError as error:
        raise DataError(f"is not a valid model name ({error})", where) from error
    except GatedRepoError as error:
        raise DataError("is gated. Log in with hf auth login.", where) from error
    except RevisionNotFoundError as error:
        raise DataError("revision does not exist", where) from error
    except RepositoryNotFoundError as error:
        raise DataError(
            "does not exist, or you do not have access. Log in with hf auth login.",
            where,
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        problem = str(error).strip().splitlines()[0]
        raise DataError(f"could not be downloaded: {problem}", where) from error


def hub_model(save: Callable[[Path], None]) -> "PyTorchModelHubMixin":
    """Return a model of huggingface_hub, which saves its files and can upload them.

    Args:
        save: Function that writes the files to a folder.
    """
    from huggingface_hub import PyTorchModelHubMixin

    class HubModel(PyTorchModelHubMixin):
        def _save_pretrained(self, save_directory: Path) -> None:
            save(save_directory)

    return HubModel()


def short_names(folders: Sequence[str | Path]) -> list[str]:
    """Return the shortest unique name of each folder.

    For the folders ``a/x``, ``b/x`` and ``c/y``, these are ``a/x``, ``b/x`` and ``y``.
    """
    parts = [Path(folder).resolve().parts for folder in folders]
    repeated = [path for path, count in Counter(parts).items() if count > 1]
    if repeated:
        raise SettingsError(f"{Path(*repeated[0])}: the same model was passed twice")

    def name(path: tuple[str, ...]) -> str:
        for count in range(1, len(path) + 1):
            end = path[-count:]
            if sum(other[-count:] == end for other in parts) == 1:
                break
        return "/".join(end)

    return [name(path) for path in parts]
