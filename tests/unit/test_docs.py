"""The pages in docs/ are true: what is made from code is up to date, and every example runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from rstream.config import known_keys
from rstream.errors import TopologyError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page: str, language: str = "python") -> list[tuple[int, str, str]]:
    """(line, code, what follows in a text block or '') of every code block of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = []
    for match in re.finditer(
        rf"^```{language}\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.MULTILINE | re.DOTALL
    ):
        line = text.count("\n", 0, match.start(1)) + 1
        found.append((line, match[1], (match[2] or "").strip()))
    return found


def test_the_page_of_settings_is_what_the_code_makes() -> None:
    made: str = runpy.run_path(str(DOCS / "config_page.py"))["page"]()
    assert (DOCS / "config.md").read_text(encoding="utf-8") == made, "run: python docs/config_page.py > docs/config.md"


def test_the_page_of_settings_has_every_key_once() -> None:
    page = (DOCS / "config.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z_.]+)` \|", page, re.MULTILINE) == known_keys()


def test_every_example_on_topologies_runs() -> None:
    """In order and in one namespace, as a reader would type them; a text block after an example is what it raises."""
    names: dict[str, Any] = {"__name__": "topologies_page"}
    examples = blocks("topologies.md")
    assert len(examples) >= 10
    for line, code, raised in examples:
        compiled = compile("\n" * (line - 1) + code, str(DOCS / "topologies.md"), "exec")
        if raised:
            with pytest.raises(TopologyError, match=re.escape(raised.partition(": ")[2])):
                exec(compiled, names)
        else:
            exec(compiled, names)


def test_every_example_on_windows_runs() -> None:
    names: dict[str, Any] = {"__name__": "windows_page"}
    for line, code, _ in blocks("windows.md"):
        exec(compile("\n" * (line - 1) + code, str(DOCS / "windows.md"), "exec"), names)


def test_the_table_of_groupings_has_every_grouping() -> None:
    from rstream import groupings
    from rstream.topology import Declarer

    page = (DOCS / "topologies.md").read_text(encoding="utf-8")
    for name in {each.__name__ for each in groupings.Grouping.__subclasses__()} - {"LocalOrShuffle"}:
        assert f"{name}(" in page, name
    for word in vars(Declarer):
        if not word.startswith("_") and word not in ("stream", "group"):
            assert f".{word}(" in page, word
