"""What `rstream doctor --cluster FILE` looks at: a file for `ray up`, and the machines that it names.

Every check is one that has gone wrong in practice and that `ray up` itself says nothing of: a node whose login shell
does not find `ray`, versions that differ, half-on authentication, an autoscaler that starts one worker too few.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import logging
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import ray
import yaml

from rstream.errors import ConfigError
from rstream.runtime import cluster
from rstream.runtime.checkup import Check, ok

SSH_TIMEOUT_S = 15
AUTOSCALER = "RAY_UP_enable_autoscaler_v2"

_ASK = (
    "import importlib.metadata,json,os,shutil,sys;import ray,rstream;"
    "print(json.dumps({'ray':ray.__version__,'rstream':importlib.metadata.version('rstream-ray'),'python':'%d.%d'%sys.version_info[:2],"
    "'auth':os.environ.get('RAY_AUTH_MODE'),'which':shutil.which('ray')}))"
)
_ASK_HEAD = (
    "import json;import ray;from rstream.runtime import cluster;"
    "cluster.connect('127.0.0.1:6379');nodes=cluster.nodes();"
    "used=sum(a['name'].count('/') for a in ray.util.list_named_actors(True) if a['namespace']=='rstream');"
    "print(json.dumps({'nodes':len(nodes),'slots':sum(n.slots for n in nodes),'used':used}))"
)


def check_cluster_file(path: str) -> Iterator[Check]:
    """Every check of the file and its machines, in the order in which they help."""
    config = read(path)
    yield from in_file(config)
    if config["provider"]["type"] != "local":
        yield ok("machines", f"made by {config['provider']['type']} when the cluster starts; not looked at")
        return
    provider = config["provider"]
    for address in (provider.get("head_ip"), *provider.get("worker_ips", [])):
        yield machine(config, str(address))
    yield running(config, str(provider.get("head_ip")))


def read(path: str) -> dict[str, Any]:
    """The file as Ray itself would take it, or an error in one line."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read cluster file {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"cluster file {path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or not isinstance(content.get("provider"), dict):
        raise ConfigError(f"cluster file {path}: wanted a cluster for `ray up` with a provider; see cluster.yaml")
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            prepared: dict[str, Any] = prepare_config(content)
            validate_config(prepared)
    except Exception as error:
        raise ConfigError(f"cluster file {path}: Ray refuses it: {cluster.first_line(error)}") from None
    return prepared


def in_file(config: Mapping[str, Any]) -> Iterator[Check]:
    """What the file itself tells."""
    yield ok("cluster file", f"{config['cluster_name']}, provider {config['provider']['type']}, Ray accepts it")
    if config["provider"]["type"] == "local":
        value = os.environ.get(AUTOSCALER)
        if value == "0":
            yield ok("autoscaler", f"{AUTOSCALER}=0")
        else:
            found = f"{AUTOSCALER} is {value or 'not set'}: Ray {ray.__version__} starts one worker too few"
            yield Check("autoscaler", "warn", found, f"{AUTOSCALER}=0 ray up -y FILE")
    starts = " ".join(config.get("head_start_ray_commands", []))
    missing = [name for name in cluster.HEALTH_CHECKS if name not in starts]
    if missing:
        remedy = f"export {missing[0]} and the others in head_start_ray_commands, as cluster.yaml does"
        yield Check("health checks", "warn", "a lost node is known after up to a minute", remedy)
    else:
        yield ok("health checks", "set on the head")
    everything = " ".join([starts, *config.get("setup_commands", []), *config.get("worker_start_ray_commands", [])])
    if "RAY_AUTH_MODE" in everything:
        yield ok("authentication", "RAY_AUTH_MODE is set on the nodes")
    else:
        remedy = "export RAY_AUTH_MODE=token in setup_commands, and mount ~/.ray/auth_token, as cluster.yaml does"
        yield Check("authentication", "warn", "RAY_AUTH_MODE is not set on the nodes", remedy)


def machine(config: Mapping[str, Any], address: str) -> Check:
    """One machine: reachable, `ray` on the PATH of its login shell, the versions of this one."""
    name = f"machine {address}"
    done = over_ssh(config, address, f'python -c "{_ASK}"')
    if done.returncode == 255:
        remedy = f"ssh -i {config['auth'].get('ssh_private_key', 'KEY')} {config['auth']['ssh_user']}@{address}"
        return Check(name, "fail", f"no login: {_last(done.stderr)}", f"make this work first: {remedy}")
    if done.returncode != 0:
        return Check(
            name,
            "fail",
            f"ray and rstream are not found by a login shell: {_last(done.stderr)}",
            "put the environment first in PATH in ~/.bashrc; `ray up` does it by the setup_commands of cluster.yaml",
        )
    found, here = json.loads(_last(done.stdout)), importlib.metadata.version("rstream-ray")
    text = f"ray {found['ray']}, rstream {found['rstream']}, Python {found['python']}, RAY_AUTH_MODE {found['auth']}"
    if not found["which"]:
        remedy = "put the environment's bin folder first in PATH in ~/.bashrc"
        return Check(name, "fail", f"{text}; `ray` is not on the PATH, so `ray down` would leave it running", remedy)
    if (found["ray"], found["rstream"]) != (ray.__version__, here):
        return Check(
            name,
            "fail",
            f"{text}; here ray {ray.__version__}, rstream {here}",
            "install the same versions: ray up -y FILE",
        )
    if not found["auth"]:
        return Check(name, "warn", text, "export RAY_AUTH_MODE=token (or disabled) in ~/.bashrc of every machine")
    return ok(name, text)


def running(config: Mapping[str, Any], head: str) -> Check:
    """Whether the cluster is up, and how many slots it has."""
    done = over_ssh(config, head, f'python -c "{_ASK_HEAD}"')
    if done.returncode != 0:
        return Check("cluster", "warn", "not running yet", f"{AUTOSCALER}=0 ray up -y FILE")
    found = json.loads(_last(done.stdout))
    wanted = 1 + len(config["provider"].get("worker_ips", []))
    text = f"{found['nodes']} of {wanted} nodes, {found['slots'] - found['used']} of {found['slots']} slots free"
    if found["nodes"] < wanted:
        return Check("cluster", "warn", text, "workers join 10 to 20 s after the head; then: ray monitor FILE")
    return ok("cluster", text)


def over_ssh(config: Mapping[str, Any], address: str, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a machine in the kind of shell that `ray up` uses there."""
    auth = config["auth"]
    options = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    options += ["-o", "ConnectTimeout=5", "-o", "LogLevel=ERROR"]
    if auth.get("ssh_private_key"):
        options += ["-i", os.path.expanduser(auth["ssh_private_key"])]
    script = f"source ~/.bashrc; {command}"
    quoted = "'" + script.replace("'", "'\\''") + "'"
    call = ["ssh", *options, f"{auth['ssh_user']}@{address}", f"bash --login -c -i {quoted}"]
    try:
        return subprocess.run(call, capture_output=True, text=True, timeout=SSH_TIMEOUT_S, check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(call, 255, "", "there is no ssh on this machine")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(call, 255, "", f"no answer within {SSH_TIMEOUT_S} s")


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
