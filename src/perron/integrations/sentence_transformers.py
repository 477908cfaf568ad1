"""Pooling modules for sentence-transformers (extra ``hf``)."""

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
        f"{__name__} requires {error.name}. Install it with: pip install 'perron[hf]'",
        name=error.name,
    ) from error

from perron.arguments import bool_mask
from perron.errors import DataError
from perron.migrations import migrate, stamp
from perron.pooling import CentralityPool, PoolingOutput
from perron.pooling.base import mask_from_lengths
from perron.registry import component_options

_WEIGHTS = "model.safetensors"
_Pooling = TypeVar("_Pooling", bound="AggregatorPooling")


class AggregatorPooling(Module):
    """Pool token embeddings into a sentence embedding with any aggregator.

    Use it after a ``Transformer`` in ``SentenceTransformer(modules=[...])``. It reads
    ``token_embeddings`` and ``attention_mask``, or ``cu_seq_lens_q`` if the transformer
    uses flattened inputs without padding. It adds ``sentence_embedding`` to the
    features, and ``token_weights`` if the aggregator has weights. The input tensors are
    not modified. The embedding of an empty text is a zero vector.

    Args:
        embed_dim: Dimension of the token embeddings.
        aggregator: Name of an aggregator, as in a recipe.
        include_prompt: Whether to include the prompt tokens in the pooling, as in
            ``Pooling`` of sentence-transformers.
        options: Options of the aggregator, as in a recipe.
    """

    def __init__(
        self,
        embed_dim: int,
        aggregator: str,
        include_prompt: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.include_prompt = include_prompt
        self.settings = read_aggregator({**options, "name": aggregator})
        self.pool = build_aggregator(self.settings, embed_dim)

    def forward(self, features: MutableMapping[str, Any], **_: Any) -> Any:
        """Add the sentence embeddings and the token weights to the features."""
        states = features.get("token_embeddings")
        if states is None:
            raise ValueError(
                "features must contain token_embeddings. Put this module after a "
                "Transformer."
            )
        if states.shape[-1] != self.embed_dim:
            raise ValueError(
                f"token_embeddings must have the dimension {self.embed_dim} of this "
                f"{type(self).__name__}, got {states.shape[-1]}. Set embed_dim to "
                f"{states.shape[-1]}."
            )
        prompt = 0 if self.include_prompt else _prompt_length(features)
        if "cu_seq_lens_q" in features:
            pooled = self._pool_flat(states, features["cu_seq_lens_q"], prompt)
        else:
            mask = features.get("attention_mask")
            if mask is None:
                mask = states.new_ones(states.shape[:2])
            pooled = self.pool(states, _mask_prompt(bool_mask(mask), prompt))
        features["sentence_embedding"] = pooled.vector
        if pooled.weights is not None:
            features["token_weights"] = pooled.weights
        return features

    def _pool_flat(self, states: Tensor, offsets: Tensor, prompt: int) -> PoolingOutput:
        """Pool flattened inputs of shape (1, M, D), as used with flash attention."""
        tokens = mask_from_lengths(offsets.long().diff())  # (B, N)
        mask = _mask_prompt(tokens, prompt)
        kept = mask[tokens]  # (M)
        pooled = self.pool(states.squeeze(0)[kept], lengths=mask.sum(1))
        if pooled.weights is None:
            return pooled
        weights = pooled.weights.new_zeros(len(kept))
        weights = weights.masked_scatter(kept, pooled.weights)
        return pooled._replace(weights=weights.unsqueeze(0))

    def get_embedding_dimension(self) -> int:
        """Return the dimension of the sentence embeddings."""
        return self.pool.out_dim

    def get_config_dict(self) -> dict[str, Any]:
        """Return the content of config.json, including the format version."""
        config = {
            "embed_dim": self.embed_dim,
            "include_prompt": self.include_prompt,
            "aggregator": self.settings.model_dump(mode="json"),
        }
        return stamp("sentence_transformers", config)

    def save(
        self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any
    ) -> None:
        """Save config.json and model.safetensors.

        The weights are always saved as safetensors; ``safe_serialization`` is ignored.
        """
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
        """Load a saved module.

        The arguments are the same as for ``Module.load`` in sentence-transformers.
        """
        location: dict[str, Any] = {
            "subfolder": subfolder,
            "token": token,
            "cache_folder": cache_folder,
            "revision": revision,
            "local_files_only": local_files_only,
        }
        folder = f"{model_name_or_path}/{subfolder}".rstrip("/")
        weights = cls.load_file_path(model_name_or_path, _WEIGHTS, **location)
        if weights is None:
            raise DataError(f"{_WEIGHTS} not found. Save the model again.", folder)
        config = cls.load_config(model_name_or_path, **location)
        if not {"embed_dim", "dim"} & config.keys():  # dim in format 1 and 2
            raise DataError(
                f"does not contain a {cls.__name__}. Pass the folder of the module "
                f"inside the model as subfolder, for example '1_{cls.__name__}'.",
                folder,
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

    See `perron.CentralityPool` for the method. Before training, all tokens have nearly
    the same weight, so a new module is close to mean pooling.

    Args:
        embed_dim: Dimension of the token embeddings. The dimension of the sentence
            embeddings is ``num_heads * embed_dim``.
        include_prompt: Whether to include the prompt tokens in the pooling.
        options: Options of `perron.CentralityPool`, such as ``hidden_dim`` and
            ``num_heads``.
    """

    def __init__(
        self, embed_dim: int, *, include_prompt: bool = True, **options: Any
    ) -> None:
        super().__init__(embed_dim, "centrality", include_prompt, **options)

    @classmethod
    def _from_config(
        cls: type[_Pooling], aggregator: dict[str, Any], **arguments: Any
    ) -> _Pooling:
        options = {key: aggregator[key] for key in aggregator if key != "name"}
        return cls(**arguments, **options)


def _signature() -> inspect.Signature:
    """Return the signature of `CentralityPooling` with all options as keywords."""
    *own, _ = inspect.signature(CentralityPooling).parameters.values()
    options = component_options(CentralityPool).values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature([*own, *(o.replace(kind=keyword) for o in options)])


CentralityPooling.__signature__ = _signature()  # type: ignore[attr-defined]


def _prompt_length(features: Mapping[str, Any]) -> int:
    """Return the number of prompt tokens, which may be a tensor with one per text."""
    length = features.get("prompt_length", 0)
    return int(length.flatten()[0]) if isinstance(length, Tensor) else int(length)


def _mask_prompt(mask: Tensor, prompt: int) -> Tensor:
    """Return a copy of the mask that is False for the prompt tokens."""
    return mask & (mask.cumsum(1) > prompt)
