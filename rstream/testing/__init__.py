"""For tests: `run` a topology in virtual time, and conformance kits for every kind of plug-in.

A kit is a function that raises an AssertionError which names the broken promise. Names are imported when first used.

>>> from rstream import Topology
>>> from rstream.testing import run
>>> topology = Topology("shout")
>>> _ = topology.source("words", ["never", "read"]).map("upper", str.upper).sink("out")
>>> run(topology, inputs={"words": ["a", "b"]})
{'out': ['A', 'B']}
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rstream.testing.links import check_link as check_link
    from rstream.testing.operators import check_operator as check_operator
    from rstream.testing.policies import check_policy as check_policy
    from rstream.testing.running import run as run
    from rstream.testing.sinks import check_sink as check_sink
    from rstream.testing.sources import check_source as check_source
    from rstream.testing.stores import check_store as check_store

_HOME = {
    "check_link": "rstream.testing.links",
    "check_operator": "rstream.testing.operators",
    "check_policy": "rstream.testing.policies",
    "check_sink": "rstream.testing.sinks",
    "check_source": "rstream.testing.sources",
    "check_store": "rstream.testing.stores",
    "run": "rstream.testing.running",
}

__all__ = ["check_link", "check_operator", "check_policy", "check_sink", "check_source", "check_store", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rstream.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
