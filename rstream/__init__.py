"""rstream: stream processing for Python on Ray.

Names are imported when first used, so that `import rstream` is quick and a graph can be built without any runtime.

>>> import rstream
>>> rstream.__version__
'0.1.0'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = ["END", "Bolt", "Reader", "Source", "Spout", "Topology", "connect", "run", "submit"]

if TYPE_CHECKING:
    from rstream.api import END as END
    from rstream.api import Bolt as Bolt
    from rstream.api import Reader as Reader
    from rstream.api import Source as Source
    from rstream.api import Spout as Spout
    from rstream.client import connect as connect
    from rstream.client import run as run
    from rstream.client import submit as submit
    from rstream.topology import Topology as Topology

_HOME = {
    "END": "rstream.api",
    "Bolt": "rstream.api",
    "Reader": "rstream.api",
    "Source": "rstream.api",
    "Spout": "rstream.api",
    "Topology": "rstream.topology",
    "connect": "rstream.client",
    "run": "rstream.client",
    "submit": "rstream.client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rstream' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
