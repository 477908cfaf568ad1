"""HTTP server for trained models, with a viewer for their word graphs."""

from typing import TYPE_CHECKING, Any

from perron.serve.limits import Limits

if TYPE_CHECKING:
    from perron.serve.app import create_app

__all__ = ["Limits", "create_app"]


def __getattr__(name: str) -> Any:
    """Import `create_app` on first use, because it needs the extra ``serve``."""
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from perron.serve.app import create_app

    return create_app
