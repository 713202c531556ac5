"""The index over fragments: a prefix tree topology / operator / task, walked one level per part of the path.

The coordinator finds with it who holds the state of a task, and with a shorter path everything below: all tasks of an
operator, all operators of a topology.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("children", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.values: list[T] = []  # none or one


class PrefixTree(Generic[T]):
    """Values at the leaves of paths.

    >>> tree = PrefixTree[str]()
    >>> tree.put("shop/count/3", "blocks")
    >>> tree.get("shop/count/3")
    'blocks'
    >>> tree.get("shop/count") is None, tree.get("shop/count/4") is None
    (True, True)
    """

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def put(self, path: str, value: T) -> None:
        """Set the value of a path."""
        node = self._root
        for part in path.split("/"):
            node = node.children.setdefault(part, _Node())
        node.values = [value]

    def get(self, path: str) -> T | None:
        """The value of exactly this path; None for a missing child and for a path that ends before a leaf."""
        node = self._find(path)
        return node.values[0] if node is not None and node.values else None

    def remove(self, path: str) -> T | None:
        """Take the value of a path out, and the branches that it leaves bare."""
        trail = [self._root]
        parts = path.split("/")
        for part in parts:
            child = trail[-1].children.get(part)
            if child is None:
                return None
            trail.append(child)
        value = trail[-1].values.pop() if trail[-1].values else None
        while parts and not trail[-1].children and not trail[-1].values:
            trail.pop()
            del trail[-1].children[parts.pop()]
        return value

    def under(self, prefix: str = "") -> Iterator[tuple[str, T]]:
        """All paths below a prefix with their values, the path itself included, sorted.

        >>> tree = PrefixTree[int]()
        >>> for task in range(3):
        ...     tree.put(f"shop/count/{task}", task)
        >>> list(tree.under("shop/count"))
        [('shop/count/0', 0), ('shop/count/1', 1), ('shop/count/2', 2)]
        """
        node = self._find(prefix) if prefix else self._root
        if node is not None:
            yield from _walk(node, prefix)

    def __len__(self) -> int:
        return sum(1 for _ in self.under())

    def _find(self, path: str) -> _Node[T] | None:
        node: _Node[T] | None = self._root
        for part in path.split("/"):
            node = node.children.get(part) if node is not None else None
        return node


def _walk(node: _Node[T], path: str) -> Iterator[tuple[str, T]]:
    for value in node.values:
        yield path, value
    for part in sorted(node.children):
        yield from _walk(node.children[part], f"{path}/{part}" if path else part)
