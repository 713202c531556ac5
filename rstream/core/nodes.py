"""How many nodes are asked of the autoscaler. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class NodeRequests:
    """What was asked of the autoscaler: at least so many nodes.

    >>> requests = NodeRequests()
    >>> requests.need(used=2, more=1), requests.need(used=2, more=0), requests.need(used=1, more=0)
    (3, None, None)
    >>> requests.settle(used=2), requests.settle(used=3), requests.settle(used=2), requests.settle(used=2)
    (None, None, 2, None)
    """

    asked: int = 0
    came: bool = False

    def need(self, used: int, more: int) -> int | None:
        """A plan needs more nodes: how many to ask for in all, if that is news."""
        if more <= 0 or used + more <= self.asked:
            return None
        self.asked, self.came = used + more, False
        return self.asked

    def covers(self, used: int, more: int) -> bool:
        """So many nodes more were asked for already."""
        return more > 0 and used + more <= self.asked

    def to_data(self) -> dict[str, Any]:
        """The requests as JSON data; `NodeRequests(**data)` leads back."""
        return asdict(self)

    def settle(self, used: int) -> int | None:
        """Nodes that are not used any more are given back: how many to ask for from now on, if that is news."""
        if not self.asked:
            return None
        self.came = self.came or used >= self.asked
        if not self.came or used >= self.asked:
            return None
        self.asked = used
        return self.asked
