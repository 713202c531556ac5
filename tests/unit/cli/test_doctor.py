"""What `doctor` finds: each check tells ok, warn or fail, and the remedy."""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
from pathlib import Path

import pytest

from rstream.runtime import checkup, cluster


def test_this_machine_passes_the_checks_that_need_no_cluster() -> None:
    for check in (checkup.python(), checkup.ray_version(), checkup.grpc_server(), checkup.erasure_coding()):
        assert check.state != "fail", check


@pytest.mark.parametrize(("mode", "state"), [(0o600, "ok"), (0o644, "warn"), (None, "fail")])
def test_a_token_that_others_can_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None, state: str
) -> None:
    token = tmp_path / "token"
    if mode is not None:
        token.write_text("secret")
        token.chmod(mode)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    check = checkup.authentication()
    assert check.state == state
    assert bool(check.remedy) == (state != "ok")


def test_the_mode_that_rstream_sets_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    assert "disabled (rstream's default)" in checkup.authentication().found


def test_slow_health_checks_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in cluster.HEALTH_CHECKS:
        monkeypatch.delenv(name, raising=False)
    assert checkup.health_checks().state == "ok"
    monkeypatch.setenv("RAY_health_check_period_ms", "60000")
    assert checkup.health_checks().state == "warn"
    monkeypatch.setenv("RAY_health_check_period_ms", "soon")
    assert checkup.health_checks().state == "fail"


def test_a_path_too_long_for_sockets_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checkup.socket_path().state == "ok"
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/" + "x" * 80)
    check = checkup.socket_path()
    assert check.state == "fail"
    assert check.remedy == "set TMPDIR to a shorter path"


@pytest.mark.parametrize(("free", "state"), [(10 << 30, "ok"), (1 << 30, "warn"), (1 << 20, "fail")])
def test_little_space_for_temporary_files(monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: _Usage(free, 0, free))
    assert checkup.temp_space().state == state


class _Usage:
    def __init__(self, total: int, used: int, free: int) -> None:
        self.total, self.used, self.free = total, used, free


def test_a_small_shared_memory_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: _Usage(64 << 20, 0, 0))
    check = checkup.shared_memory(str(tmp_path))
    assert (check.state, check.found) == ("warn", f"64 MB in {tmp_path}")
    assert checkup.shared_memory(str(tmp_path / "none")).state == "ok"


def test_java_is_only_missed_where_pyspark_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert checkup.java().state == "ok"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    check = checkup.java()
    assert check.state == "warn"
    assert "install Java 17" in check.remedy
