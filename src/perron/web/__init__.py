"""Trained models over HTTP, and a page to look at what they see."""

from perron.web.app import create_app
from perron.web.limits import Limits

__all__ = ["Limits", "create_app"]
