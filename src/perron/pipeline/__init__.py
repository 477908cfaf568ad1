"""Trained models for people: `perron.load`."""

from perron.pipeline.card import Score, model_card
from perron.pipeline.pipeline import Pipeline, load
from perron.pipeline.several import load_all, names_of

__all__ = ["Pipeline", "Score", "load", "load_all", "model_card", "names_of"]
