"""The command line on the Ray cluster that all tests of a run share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT, TwoNodes

__all__ = ["ROOT", "TwoNodes"]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that lets a `Gated` source go on; `touch` it."""
    return tmp_path / "gate"


@pytest.fixture
def rstream(two_nodes: TwoNodes) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line as another program would use it, on the shared cluster."""

    def call(*arguments: str, cwd: Path | None = None, timeout_s: float = 90) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "RAY_ADDRESS": two_nodes.address}
        return subprocess.run(
            [sys.executable, "-m", "rstream", *arguments],
            cwd=cwd or ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return call
