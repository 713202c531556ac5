"""A reference for keyed state: plain dicts, deep copies and no cleverness, driven by the same random steps."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any
from zlib import crc32

from rstream.state.keyed import KeyedState

KEYS = ["a", "b", "c", "d", 1, 2.5, ("t", 1), None, b"x"]
TTL_S = 5.0


def slot_of(key: Any) -> int:
    return crc32(repr(key).encode()) & 0xFFFF


class Twin:
    """A KeyedState and its reference, always changed together."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.state = KeyedState(slot_of)
        self.model: dict[tuple[str, Any], Any] = {}
        self.written_s: dict[tuple[str, Any], float] = {}
        self.declare(self.state)

    @staticmethod
    def declare(state: KeyedState) -> None:
        state.value("value", default=None)
        state.value("short", default=0, ttl_s=TTL_S)
        state.map("map")
        state.map("map_short", ttl_s=TTL_S)
        state.list("list")
        state.list("list_short", ttl_s=TTL_S)

    def step(self) -> None:
        """One random write, by every way there is to write."""
        self.state.now_s += self.random.choice([0.0, 0.0, 0.3])
        self.expire()
        self.state.current = self.random.choice(KEYS)
        name = self.random.choice(["value", "short", "map", "map_short", "list", "list_short"])
        {"v": self.on_value, "s": self.on_value, "m": self.on_map, "l": self.on_list}[name[0]](name)

    def on_value(self, name: str) -> None:
        handle = self.state.value(name, *((None, None) if name == "value" else (0, TTL_S)))
        at = (name, self.state.current)
        match self.random.randrange(5):
            case 0:
                self.write(at, self.random.random())
                handle.set(deepcopy(self.model[at]))
            case 1:
                self.write(at, [self.random.randrange(9)])
                handle.set(deepcopy(self.model[at]))
            case 2:
                held = handle.get()
                if isinstance(held, list):  # changed in place: no set()
                    held.append("more")
                    self.model[at].append("more")
            case 3:
                handle.clear()
                self.model.pop(at, None)
            case _:
                batch = self.random.sample(KEYS, 3)
                cells = self.state.writable(name, batch)
                for key in batch:
                    cells[key] = self.random.random()
                    self.write((name, key), cells[key])

    def on_map(self, name: str) -> None:
        handle = self.state.map(name, TTL_S if "short" in name else None)
        at, item = (name, self.state.current), self.random.randrange(4)
        match self.random.randrange(6):
            case 0 | 1:
                value = self.random.choice([self.random.random(), [1], ("f", 2)])
                handle.set(item, deepcopy(value))
                self.write(at, {**self.model.get(at, {}), item: value})
            case 2:
                held = handle.get(item)
                if isinstance(held, list):
                    held.append("more")
                    self.model[at][item].append("more")
            case 3:
                for item, held in handle.items():
                    if isinstance(held, list):
                        held.append("all")
                        self.model[at][item].append("all")
            case 4:
                handle.delete(item)
                if item in self.model.get(at, {}):
                    rest = {k: v for k, v in self.model[at].items() if k != item}
                    self.write(at, rest) if rest else self.model.pop(at)
            case _ if self.random.random() < 0.2:
                handle.clear()
                self.model.pop(at, None)

    def on_list(self, name: str) -> None:
        handle = self.state.list(name, TTL_S if "short" in name else None)
        at = (name, self.state.current)
        match self.random.randrange(4):
            case 0 | 1:
                values = [self.random.choice([1, "x", ["y"]]) for _ in range(self.random.randrange(1, 4))]
                if len(values) == 1:
                    handle.append(deepcopy(values[0]))
                else:
                    handle.extend(deepcopy(values))
                self.write(at, self.model.get(at, []) + values)
            case 2:
                for number, held in enumerate(handle):
                    if isinstance(held, list):
                        held.append("seen")
                        self.model[at][number].append("seen")
            case _ if self.random.random() < 0.3:
                handle.clear()
                self.model.pop(at, None)

    def write(self, at: tuple[str, Any], value: Any) -> None:
        self.model[at] = value
        self.written_s[at] = self.state.now_s

    def expire(self) -> None:
        for at in [at for at in self.model if "short" in at[0]]:
            if self.written_s[at] + TTL_S <= self.state.now_s:
                del self.model[at]

    def picture(self) -> dict[tuple[str, Any], Any]:
        self.expire()
        return deepcopy(self.model)


def picture_of(state: KeyedState) -> dict[tuple[str, Any], Any]:
    """All that a state holds, in the form of the reference."""
    return {(name, key): value for name in state.names() for key, value in state.items(name)}


def in_order(picture: dict[tuple[str, Any], Any]) -> dict[tuple[str, Any], Any]:
    """The same with maps as lists of pairs, so that comparing sees the order of their items too."""
    return {at: list(cell.items()) if isinstance(cell, dict) else cell for at, cell in picture.items()}
