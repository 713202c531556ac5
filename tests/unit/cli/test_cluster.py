"""Where there is no Ray: one line that says what to start, whatever Ray itself said."""

from __future__ import annotations

import pytest
import ray

from rstream.cli import main as cli
from rstream.errors import ClusterError
from rstream.runtime import cluster


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray as it is on a machine where none runs."""

    def init(**_: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nPlease specify the one to connect to.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("arguments", [["submit", "topologies/wordcount.py"], ["list"], ["status", "job"]])
def test_without_a_cluster_the_one_line_names_ray_start(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(arguments) == 2
    assert capsys.readouterr().err == (
        "rstream: no Ray cluster runs on this machine; start one with: ray start --head, or name one with --address\n"
    )


@pytest.mark.usefixtures("no_ray")
def test_a_ray_that_does_not_start_sends_to_the_doctor() -> None:
    with pytest.raises(ClusterError, match=r"could not be started .*\(Could not find any .*\); .*rstream doctor$"):
        cluster.start_private()


def test_only_ip_and_port_are_tried_before_ray_is() -> None:
    assert cluster._answers("auto")
    assert cluster._answers("ray://head:10001")
    assert not cluster._answers("127.0.0.1:1")
