"""Word counts equal an independent count: every grouping that promises it, 1 to 4 workers, both hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rstream import Topology, run, submit
from tests.cluster.conftest import TwoNodes
from tests.cluster.word_counts import GROUPINGS, word_count, write_text

SMALL_BYTES = 1_000_000
LARGE_BYTES = 28_000_000


@dataclass(frozen=True)
class Text:
    """A file, and what an independent count found in it."""

    path: Path
    counts: Counter[str]


Make = Callable[[int], Text]


@pytest.fixture(scope="module")
def text_of(tmp_path_factory: pytest.TempPathFactory) -> Make:
    made: dict[int, Text] = {}

    def text(size_bytes: int) -> Text:
        if size_bytes not in made:
            path = tmp_path_factory.mktemp("words") / "text.txt"
            made[size_bytes] = Text(path, write_text(path, size_bytes))
        return made[size_bytes]

    return text


def counted(topology: Topology, workers: int, local: bool) -> list[tuple[str, int]]:
    if local:
        return list(run(topology, local=True, workers=workers).results["out"])
    handle = submit(topology, workers=workers, spares=0, folder="")
    assert handle.wait(240) == "FINISHED"
    assert len([worker for worker in handle.status()["workers"] if not worker["spare"]]) == workers
    return handle.results("out")


def agree(pairs: list[tuple[str, int]], expected: Counter[str]) -> None:
    """Every word once, with its count; a difference is shown by its first words."""
    found: dict[Any, int] = dict(pairs)
    assert len(found) == len(pairs), "a word came from two tasks"
    wrong = {word: (found.get(word), n) for word, n in expected.items() if found.get(word) != n}
    assert not wrong, dict(list(wrong.items())[:5])
    assert len(found) == len(expected)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_embedded_word_counts_are_exact(text_of: Make, grouping: str, workers: int) -> None:
    text = text_of(SMALL_BYTES)
    agree(counted(word_count(grouping, text.path, 3), workers, local=True), text.counts)


@pytest.mark.parametrize("grouping", ["key", "partial-key", "direct"])
def test_word_counts_on_a_cluster_are_exact(two_nodes: TwoNodes, text_of: Make, grouping: str) -> None:
    text = text_of(SMALL_BYTES)
    agree(counted(word_count(grouping, text.path, 4), 4, local=False), text.counts)


@pytest.mark.long
@pytest.mark.parametrize("host", ["embedded", "ray"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_word_counts_of_28_mb_are_exact(
    request: pytest.FixtureRequest, text_of: Make, grouping: str, workers: int, host: str
) -> None:
    if host == "ray":
        request.getfixturevalue("two_nodes")
    text = text_of(LARGE_BYTES)
    agree(counted(word_count(grouping, text.path, 4), workers, local=host == "embedded"), text.counts)
