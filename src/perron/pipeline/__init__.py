"""Trained models for people: `perron.load`."""

from perron.pipeline.pipeline import Pipeline, load
from perron.pipeline.several import load_all, names_of

__all__ = ["Pipeline", "load", "load_all", "names_of"]
