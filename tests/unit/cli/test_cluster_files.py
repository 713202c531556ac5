"""Ray accepts every cluster file that is shipped, and `doctor --cluster` says what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from rstream.cli.main import make_app
from rstream.errors import ConfigError
from rstream.runtime import cluster
from rstream.runtime.cluster_file import AUTOSCALER, in_file, read
from tests.documents import ROOT

FILES = ["cluster.yaml", "docs/clusters/aws.yaml", "docs/clusters/gcp.yaml"]


@pytest.mark.parametrize("name", FILES)
def test_ray_accepts_every_cluster_file(name: str) -> None:
    config = read(str(ROOT / name))
    assert config["max_workers"] >= 2
    states = {check.name: check.state for check in in_file(config)}
    assert states["health checks"] == states["authentication"] == "ok"


@pytest.mark.parametrize("name", FILES)
def test_what_is_mounted_is_there_and_installs(name: str) -> None:
    mounts = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))["file_mounts"]
    ours = {remote: local for remote, local in mounts.items() if remote.startswith("~/rstream/")}
    assert all((ROOT / local).exists() for local in ours.values())
    links = [path for path in (ROOT / "rstream").iterdir() if path.is_symlink()]
    assert {link.name for link in links} <= {Path(local).name for local in ours.values()}


def test_every_line_of_the_cluster_file_says_what_it_is_for_and_two_are_to_edit() -> None:
    lines = (ROOT / "cluster.yaml").read_text(encoding="utf-8").splitlines()
    bare = [line for line in lines if line.strip() and "#" not in line and line.strip() not in ("provider:", "auth:")]
    # What remains is the folded command, which the line after it explains.
    assert all(line.startswith(("  - >-", "    ")) for line in bare), bare
    assert sum("EDIT" in line and not line.startswith("#") for line in lines) == 2


def test_the_file_for_kubernetes_names_the_same_settings() -> None:
    content = yaml.safe_load((ROOT / "docs/clusters/kuberay.yaml").read_text(encoding="utf-8"))
    assert (content["apiVersion"], content["kind"]) == ("ray.io/v1", "RayCluster")
    head = content["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert {each["name"]: each["value"] for each in head["env"]} == cluster.HEALTH_CHECKS
    (workers,) = content["spec"]["workerGroupSpecs"]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]


def test_a_missing_autoscaler_variable_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    config = read(str(ROOT / "cluster.yaml"))
    monkeypatch.delenv(AUTOSCALER, raising=False)
    (found,) = [check for check in in_file(config) if check.name == "autoscaler"]
    assert found.state == "warn"
    assert "ray up" in found.remedy
    monkeypatch.setenv(AUTOSCALER, "0")
    assert [check.state for check in in_file(config) if check.name == "autoscaler"] == ["ok"]


def test_wrong_files_are_refused_in_one_line(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    for content, words in (
        ("just text", "wanted a cluster"),
        ("provider: {type: local\n", "not valid YAML"),
        ("cluster_name: x\nprovider: {type: local, head_ip: h, worker_ips: []}\nauth: {}\nhead: 1\n", "Ray refuses it"),
    ):
        wrong.write_text(content)
        with pytest.raises(ConfigError, match=words) as raised:
            read(str(wrong))
        assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="cannot read cluster file"):
        read(str(tmp_path / "none.yaml"))


def test_doctor_takes_a_cluster_file() -> None:
    result = CliRunner().invoke(make_app(), ["doctor", "--cluster", str(ROOT / "docs/clusters/aws.yaml"), "--json"])
    assert '"machines"' in result.output
