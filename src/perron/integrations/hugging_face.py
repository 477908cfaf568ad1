"""A sequence classifier of `transformers` with centrality pooling.

Needs the extra ``hf``. Importing this module registers the model with the ``Auto``
classes and ``pipeline("text-classification")``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from perron.layers.pretrained import model_config, read_encoder, remove_pooler
from perron.migrations import migrate, stamp
from perron.models.classifiers import build_aggregator
from perron.models.config import read_aggregator
from perron.pooling import Aggregator


class CentralityConfig(PretrainedConfig):
    """What `CentralityForSequenceClassification` is made of."""

    model_type = "perron-centrality"
    # What a Trainer need not gather when it evaluates.
    keys_to_ignore_at_inference: ClassVar[list[str]] = [
        "weights",
        "edges",
        "hidden_states",
        "attentions",
    ]

    def __init__(
        self,
        encoder: Mapping[str, Any] | None = None,
        aggregator: str | Mapping[str, Any] = "centrality",
        classifier_dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        """Check what a classifier is made of.

        Args:
            encoder: the configuration of a model of `transformers`, as a dict with
                its ``model_type``.
            aggregator: name, or name and settings, as in a recipe:
                ``{"name": "centrality", "num_heads": 2}``.
            classifier_dropout: before the last layer.
            kwargs: what every configuration takes: num_labels, id2label, ….
        """
        super().__init__(**kwargs)
        self.encoder = None if encoder is None else dict(encoder)
        self.aggregator = read_aggregator(aggregator).model_dump(mode="json")
        self.classifier_dropout = classifier_dropout

    def to_dict(self) -> dict[str, Any]:
        """Return what config.json contains, with its format version."""
        return stamp("transformers", super().to_dict())

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read what `to_dict` returned, in this version or an earlier one."""
        return super().from_dict(migrate("transformers", config_dict), **kwargs)


_LOSSES = {
    "regression": lambda logits, labels: F.mse_loss(logits, labels.to(logits.dtype)),
    "single_label_classification": F.cross_entropy,
    "multi_label_classification": lambda logits, labels: (
        F.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
    ),
}


@dataclass
class CentralityClassifierOutput(SequenceClassifierOutput):
    """What every sequence classifier gives, and what pooling found.

    Attributes:
        weights: (B, N), what each token weighs, zero on padding; None for an aggregator
            without weights.
        edges: (B, N, N), from j to i, if they were asked for.
    """

    weights: Tensor | None = None
    edges: Tensor | None = None


class CentralityForSequenceClassification(PreTrainedModel):
    """Any encoder, centrality pooling over its tokens, dropout, a linear layer.

    Takes what the encoder's tokenizer gives, marks such as ``[CLS]`` included, and
    works with `Trainer`, `pipeline("text-classification")`, `save_pretrained` and
    `push_to_hub` as any model of `transformers` does.
    """

    config_class = CentralityConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(self, config: CentralityConfig) -> None:
        """Set up random weights; `from_encoder` starts from pretrained ones."""
        super().__init__(config)
        if config.encoder is None:
            raise ValueError(
                "the configuration has no encoder: "
                "CentralityForSequenceClassification.from_encoder(NAME) takes one"
            )
        encoder = remove_pooler(AutoModel.from_config(model_config(config.encoder)))
        self.encoder = encoder
        settings = read_aggregator(config.aggregator)
        self.aggregator = build_aggregator(settings, encoder.config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(self.aggregator.out_dim, config.num_labels or 2)
        self.post_init()

    @classmethod
    def from_encoder(
        cls,
        name: str,
        aggregator: str | Mapping[str, Any] = "centrality",
        classifier_dropout: float = 0.1,
        **config: Any,
    ) -> "CentralityForSequenceClassification":
        """Start from a pretrained encoder, with a new aggregator and a new last layer.

        Args:
            name: a folder, or a name on the hub.
            aggregator: see `CentralityConfig`.
            classifier_dropout: before the last layer.
            config: num_labels, id2label, label2id, problem_type, ….
        """
        pretrained, content = read_encoder(name)
        model = cls(
            CentralityConfig(
                encoder=content,
                aggregator=aggregator,
                classifier_dropout=classifier_dropout,
                **config,
            )
        )
        model.encoder.load_state_dict(pretrained.state_dict())
        return model

    def _init_weights(self, module: nn.Module) -> None:
        """Draw what is missing as its own class does; the encoder does so itself."""
        if isinstance(module, Aggregator) or module is self.classifier:
            module.reset_parameters()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_edges: bool = False,
        return_dict: bool | None = None,
        **encoder: Any,
    ) -> CentralityClassifierOutput | tuple[Tensor, ...]:
        """Classify texts.

        Args:
            input_ids: (B, N); or give inputs_embeds.
            attention_mask: 1 (or True) on tokens, 0 on padding; (B, N). Defaults to no
                padding.
            token_type_ids: (B, N), for encoders that have them.
            inputs_embeds: (B, N, E), instead of input_ids.
            labels: (B) of classes, for which a loss is returned; (B, C) of floats for
                several labels a text; numbers for regression.
            output_edges: return the graph too, if the aggregator has one.
            return_dict: a tuple if False.
            encoder: more arguments of the encoder, such as position_ids.
        """
        if token_type_ids is not None:
            encoder["token_type_ids"] = token_type_ids
        found = self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **encoder,
        )
        states = found.last_hidden_state
        pooled = self.aggregator(states, attention_mask, need_edges=output_edges)
        logits = self.classifier(self.dropout(pooled.vector))
        loss: Any = None if labels is None else self._loss(logits, labels)
        output = CentralityClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=found.get("hidden_states"),
            attentions=found.get("attentions"),
            weights=pooled.weights,
            edges=pooled.edges,
        )
        return output.to_tuple() if return_dict is False else output

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind = self.config.problem_type
        if kind is None:
            if self.config.num_labels == 1:
                kind = "regression"
            elif labels.is_floating_point():
                kind = "multi_label_classification"
            else:
                kind = "single_label_classification"
        if kind == "regression":
            labels = labels.reshape(logits.shape)
        return _LOSSES[kind](logits, labels)


AutoConfig.register(CentralityConfig.model_type, CentralityConfig)
AutoModelForSequenceClassification.register(
    CentralityConfig, CentralityForSequenceClassification
)
