"""The command line as another program uses it, and proof that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.deadline import wait_until

ROOT = Path(__file__).resolve().parents[2]
MARK = "TEST_COMMAND_ID"
"""A variable that every process below a command inherits, those of its own Ray included."""


@dataclass(frozen=True)
class Command:
    """One start of `rstream` in its own environment."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it; the caller waits for its end."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RSTREAM_"))}
        environment.update({MARK: self.id, "PYTHONPATH": str(ROOT), **self.environment})
        return subprocess.Popen(
            [sys.executable, "-m", "rstream", *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        return subprocess.CompletedProcess(list(arguments), process.returncode, out, err)

    def alive(self) -> list[psutil.Process]:
        """What is still running of it."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.id and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def left_nothing(self) -> None:
        """No process of it lives longer than moments after it, and no socket stays in its place for temporary files."""
        wait_until(lambda: not self.alive(), "every process of the command to be gone", timeout_s=10)
        if "TMPDIR" in self.environment:
            assert list(Path(self.environment["TMPDIR"]).rglob("*.sock")) == []


def lines(text: str) -> list[str]:
    """The lines of an output that are not empty."""
    return [line for line in text.splitlines() if line.strip()]


def files_in(folder: Path) -> Iterator[str]:
    """Every file and folder below a folder."""
    return (str(path.relative_to(folder)) for path in sorted(folder.rglob("*")))
