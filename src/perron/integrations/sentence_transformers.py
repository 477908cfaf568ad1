"""Perron's pooling as a module of sentence-transformers (extra ``hf``)."""

import inspect
from collections.abc import Mapping, MutableMapping
from typing import Any, TypeVar

from torch import Tensor

try:
    from safetensors.torch import load_model
    from sentence_transformers.base.modules import Module

    from perron.models.classifiers import build_aggregator
    from perron.models.config import read_aggregator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{__name__} needs {error.name}: pip install 'perron[hf]'", name=error.name
    ) from error

from perron.arguments import bool_mask
from perron.errors import DataError
from perron.migrations import migrate, stamp
from perron.pooling import CentralityPool, PoolingOutput
from perron.pooling.base import mask_of
from perron.registry import options_of

_WEIGHTS = "model.safetensors"
_Pooling = TypeVar("_Pooling", bound="AggregatorPooling")


class AggregatorPooling(Module):
    """Pool token embeddings into a sentence embedding by any aggregator.

    Follows a ``Transformer`` in ``SentenceTransformer(modules=[...])``. Reads
    ``token_embeddings`` with ``attention_mask``, or with ``cu_seq_lens_q`` where the
    transformer leaves padding out. Writes ``sentence_embedding``, and
    ``token_weights``, what each token weighs, if the aggregator has weights. No tensor
    that comes in is changed. A text with no tokens gets a zero vector.
    """

    def __init__(
        self,
        embed_dim: int,
        aggregator: str,
        include_prompt: bool = True,
        **options: Any,
    ) -> None:
        """Set up the aggregator.

        Args:
            embed_dim: Width of the token embeddings.
            aggregator: Name of an aggregator, as in a recipe.
            include_prompt: Pool the tokens of a prompt too, as in the library's own
                ``Pooling``.
            options: Options of the aggregator, as in a recipe.
        """
        super().__init__()
        self.embed_dim = embed_dim
        self.include_prompt = include_prompt
        self.settings = read_aggregator({**options, "name": aggregator})
        self.pool = build_aggregator(self.settings, embed_dim)

    def forward(self, features: MutableMapping[str, Any], **_: Any) -> Any:
        """Write the embeddings of sentences and the weights of tokens; return all."""
        states = features.get("token_embeddings")
        if states is None:
            raise ValueError("no token_embeddings: this module follows a Transformer")
        if states.shape[-1] != self.embed_dim:
            raise ValueError(
                f"{type(self).__name__} was made for token embeddings of width "
                f"{self.embed_dim}, but they have {states.shape[-1]}: give that as embed_dim"
            )
        prompt = 0 if self.include_prompt else _prompt_length(features)
        if "cu_seq_lens_q" in features:
            pooled = self._pool_flat(states, features["cu_seq_lens_q"], prompt)
        else:
            mask = features.get("attention_mask")
            words = states.new_ones(states.shape[:2]) if mask is None else mask
            pooled = self.pool(states, _after_prompt(bool_mask(words), prompt))
        features["sentence_embedding"] = pooled.vector
        if pooled.weights is not None:
            features["token_weights"] = pooled.weights
        return features

    def _pool_flat(self, states: Tensor, offsets: Tensor, prompt: int) -> PoolingOutput:
        """Pool (1, M, D), text after text, as flash attention has it."""
        mask = mask_of(offsets.long().diff())  # (B, N)
        words = _after_prompt(mask, prompt)
        kept = words[mask]  # (M)
        pooled = self.pool(states.squeeze(0)[kept], lengths=words.sum(1))
        if pooled.weights is None:
            return pooled
        weights = pooled.weights.new_zeros(len(kept))
        weights = weights.masked_scatter(kept, pooled.weights)
        return pooled._replace(weights=weights.unsqueeze(0))

    def get_embedding_dimension(self) -> int:
        """Return the width of a sentence embedding."""
        return self.pool.out_dim

    def get_config_dict(self) -> dict[str, Any]:
        """Return what config.json contains, with its format version."""
        config = {
            "embed_dim": self.embed_dim,
            "include_prompt": self.include_prompt,
            "aggregator": self.settings.model_dump(mode="json"),
        }
        return stamp("sentence_transformers", config)

    def save(
        self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any
    ) -> None:
        """Write config.json and model.safetensors, and no pickle even if asked."""
        self.save_config(output_path)
        self.save_torch_weights(output_path)

    @classmethod
    def load(
        cls: type[_Pooling],
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        init_defaults: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> _Pooling:
        """Read what `save` wrote; the arguments are those of the library's modules."""
        place: dict[str, Any] = {
            "subfolder": subfolder,
            "token": token,
            "cache_folder": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        weights = cls.load_file_path(model_name_or_path, _WEIGHTS, **place)
        if weights is None:
            where = f"{model_name_or_path}/{subfolder}".rstrip("/")
            raise DataError(f"has no {_WEIGHTS}: it was not saved completely", where)
        config = cls.load_config(model_name_or_path, **place)
        if not {"embed_dim", "dim"} & config.keys():  # dim: before version 3
            raise DataError(
                f"is no {cls.__name__}; its own folder inside that of the model is "
                f"given as subfolder, for example '1_{cls.__name__}'",
                f"{model_name_or_path}/{subfolder}".rstrip("/"),
            )
        module = cls._from_config(
            **migrate("sentence_transformers", config, model_name_or_path)
        )
        load_model(module, weights)
        return module

    @classmethod
    def _from_config(
        cls: type[_Pooling], aggregator: dict[str, Any], **arguments: Any
    ) -> _Pooling:
        options = dict(aggregator)
        return cls(aggregator=options.pop("name"), **arguments, **options)


class CentralityPooling(AggregatorPooling):
    """Pool token embeddings by their centrality in a learned graph of the text.

    The mathematics are those of `perron.CentralityPool`. Before training all tokens
    weigh nearly the same, so that a new module begins near mean pooling.
    """

    def __init__(
        self, embed_dim: int, *, include_prompt: bool = True, **options: Any
    ) -> None:
        """Set up the graph.

        Args:
            embed_dim: Width of the token embeddings; that of a sentence is heads × embed_dim.
            include_prompt: Pool the tokens of a prompt too.
            options: Options of `perron.CentralityPool`, such as hidden and heads.
        """
        super().__init__(embed_dim, "centrality", include_prompt, **options)

    @classmethod
    def _from_config(
        cls: type[_Pooling], aggregator: dict[str, Any], **arguments: Any
    ) -> _Pooling:
        options = {key: aggregator[key] for key in aggregator if key != "name"}
        return cls(**arguments, **options)


def _signature() -> inspect.Signature:
    """Return the signature of `CentralityPooling` with the options spelled out."""
    *own, _ = inspect.signature(CentralityPooling).parameters.values()
    options = options_of(CentralityPool).values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([*own, *(o.replace(kind=keyword) for o in options)])


CentralityPooling.__signature__ = _signature()  # type: ignore[attr-defined]


def _prompt_length(features: Mapping[str, Any]) -> int:
    """Return how many tokens the prompt has; a tensor holds it for each text."""
    length = features.get("prompt_length", 0)
    return int(length.flatten()[0]) if isinstance(length, Tensor) else int(length)


def _after_prompt(mask: Tensor, prompt: int) -> Tensor:
    """Return a new mask, False on the first words of each text."""
    return mask & (mask.cumsum(1) > prompt)
