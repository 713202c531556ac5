"""The code blocks of a document, so that tests can run what readers will."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    """The blocks of one language in a page, named from the root of the repository."""
    return [body for kind, body in _BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) if kind == language]


def commands(page: str) -> list[list[str]]:
    """Every command line of a page's shell blocks, as words."""
    return [line.split() for block in blocks(page, "sh") for line in block.splitlines() if line.strip()]
