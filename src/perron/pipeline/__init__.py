"""Trained models for people: `perron.load`."""

from perron.pipeline.pipeline import Pipeline, load

__all__ = ["Pipeline", "load"]
