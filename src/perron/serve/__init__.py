"""Trained models over HTTP, and a page to look at what they see."""

from perron.serve.app import create_app
from perron.serve.limits import Limits

__all__ = ["Limits", "create_app"]
