"""Large corpora: one callable for Ray, `datasets.map` and Spark."""

from perron.integrations.corpora.mapper import TextMapper

__all__ = ["TextMapper"]
