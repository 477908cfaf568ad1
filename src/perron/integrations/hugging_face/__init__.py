"""Centrality pooling as a model of `transformers`; needs the extra ``hf``.

Importing this makes the ``Auto`` classes and ``pipeline("text-classification")`` know
the model.
"""

from transformers import AutoConfig, AutoModelForSequenceClassification

from perron.integrations.hugging_face.config import CentralityConfig
from perron.integrations.hugging_face.model import (
    CentralityClassifierOutput,
    CentralityForSequenceClassification,
)

__all__ = [
    "CentralityClassifierOutput",
    "CentralityConfig",
    "CentralityForSequenceClassification",
]

AutoConfig.register(CentralityConfig.model_type, CentralityConfig)
AutoModelForSequenceClassification.register(
    CentralityConfig, CentralityForSequenceClassification
)
