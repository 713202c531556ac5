"""View, Plan and the scheduling policies; nothing of the runtime.

What stands here is loaded when it is asked for: a router needs one small rule of this package, and no policies.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rstream.schedulers.base import Plan, Policy, View, diff
    from rstream.schedulers.registry import make, names

__all__ = ["Plan", "Policy", "View", "diff", "make", "names"]


def __getattr__(name: str) -> Any:
    if name in ("base", "registry"):
        return import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'registry' if name in ('make', 'names') else 'base'}"), name)
