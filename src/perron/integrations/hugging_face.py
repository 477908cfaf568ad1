"""Sequence classifier for `transformers` with centrality pooling (extra ``hf``).

Importing this module registers the model with the ``Auto`` classes and
``pipeline("text-classification")``.
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

from perron.layers.pretrained import load_encoder, model_config, remove_pooler
from perron.migrations import migrate, stamp
from perron.models.classifiers import build_aggregator
from perron.models.config import read_aggregator
from perron.pooling import Aggregator


class CentralityConfig(PretrainedConfig):
    """Configuration of `CentralityForSequenceClassification`.

    Args:
        encoder: Configuration of a model of `transformers`, as a dict with its
            ``model_type``.
        aggregator: Name of an aggregator, or a dict with its name and options, as in a
            recipe: ``{"name": "centrality", "num_heads": 2}``.
        classifier_dropout: Dropout probability before the classification layer.
        kwargs: Arguments of `PretrainedConfig`, such as ``num_labels`` and
            ``id2label``.
    """

    model_type = "perron-centrality"
    # Outputs that a Trainer does not gather during evaluation.
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
        super().__init__(**kwargs)
        self.encoder = None if encoder is None else dict(encoder)
        self.aggregator = read_aggregator(aggregator).model_dump(mode="json")
        self.classifier_dropout = classifier_dropout

    def to_dict(self) -> dict[str, Any]:
        """Return the content of config.json, including the format version."""
        return stamp("transformers", super().to_dict())

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Build a configuration from a dict of this or an earlier format version."""
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
    """Output of a sequence classifier, with the weights and edges of its tokens.

    Attributes:
        weights: Weight of each token, (B, N), zero on padding. None if the aggregator
            has no weights.
        edges: Edge weights from token j to token i, (B, N, N), if ``output_edges`` was
            set and the aggregator has a graph.
    """

    weights: Tensor | None = None
    edges: Tensor | None = None


class CentralityForSequenceClassification(PreTrainedModel):
    """Encoder with centrality pooling and a linear classification layer on top.

    The encoder can be any model of `transformers` that returns ``last_hidden_state``.
    All tokens are pooled, including special tokens such as ``[CLS]``. The model works
    with `Trainer`, ``pipeline("text-classification")``, `save_pretrained` and
    `push_to_hub`.

    The weights of a new model are random. Use `from_encoder` to start from a pretrained
    encoder.
    """

    config_class = CentralityConfig
    base_model_prefix = "encoder"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    def __init__(self, config: CentralityConfig) -> None:
        super().__init__(config)
        if config.encoder is None:
            raise ValueError(
                "config.encoder must be set, got None. Use "
                "CentralityForSequenceClassification.from_encoder(NAME)."
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
        """Create a model from a pretrained encoder.

        The aggregator and the classification layer are newly initialized.

        Args:
            name: Folder of the encoder, or its name on the Hugging Face Hub.
            aggregator: Aggregator, as in `CentralityConfig`.
            classifier_dropout: Dropout probability before the classification layer.
            config: Arguments of `PretrainedConfig`, such as ``num_labels``,
                ``id2label``, ``label2id`` and ``problem_type``.
        """
        pretrained, encoder_config = load_encoder(name)
        model = cls(
            CentralityConfig(
                encoder=encoder_config,
                aggregator=aggregator,
                classifier_dropout=classifier_dropout,
                **config,
            )
        )
        model.encoder.load_state_dict(pretrained.state_dict())
        return model

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize new modules; the encoder initializes its own."""
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
        """Classify a batch of texts.

        Args:
            input_ids: Token ids, (B, N).
            attention_mask: 1 or True for tokens, 0 or False for padding, (B, N).
                Defaults to no padding.
            token_type_ids: Segment ids, (B, N), for encoders that use them.
            inputs_embeds: Token embeddings, (B, N, E), instead of ``input_ids``.
            labels: Labels for computing the loss: class indices (B), floats (B, C) for
                multi-label classification, or regression targets.
            output_edges: Whether to return the graph, if the aggregator has one.
            return_dict: Whether to return a `CentralityClassifierOutput` instead of a
                tuple. Defaults to True.
            encoder: Further arguments of the encoder, such as ``position_ids``.
        """
        if token_type_ids is not None:
            encoder["token_type_ids"] = token_type_ids
        outputs = self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **encoder,
        )
        states = outputs.last_hidden_state
        pooled = self.aggregator(states, attention_mask, need_edges=output_edges)
        logits = self.classifier(self.dropout(pooled.vector))
        loss: Any = None if labels is None else self._loss(logits, labels)
        output = CentralityClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.get("hidden_states"),
            attentions=outputs.get("attentions"),
            weights=pooled.weights,
            edges=pooled.edges,
        )
        return output.to_tuple() if return_dict is False else output

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        problem_type = self.config.problem_type
        if problem_type is None:
            if self.config.num_labels == 1:
                problem_type = "regression"
            elif labels.is_floating_point():
                problem_type = "multi_label_classification"
            else:
                problem_type = "single_label_classification"
        if problem_type == "regression":
            labels = labels.reshape(logits.shape)
        return _LOSSES[problem_type](logits, labels)


AutoConfig.register(CentralityConfig.model_type, CentralityConfig)
AutoModelForSequenceClassification.register(
    CentralityConfig, CentralityForSequenceClassification
)
