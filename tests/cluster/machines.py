"""Machines for tests of `ray up`: namespaces of this one, each with an address, a home and an SSH server of its own.

What they share is the disk, read through this checkout's environment. They install rstream from the checkout as any
machine does; what it depends on they find installed, because there is no network in here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.deadline import wait_until

NETWORK = "10.77.0."
LAPTOP = 1
"""The number of the machine that the commands are given on."""

_SWITCH = """
set -e
mount -t tmpfs tmpfs /run && mkdir -p /run/sshd /run/netns
mkdir -p /tmp/ray && mount -t tmpfs tmpfs /tmp/ray
ip link set lo up
ip link add br0 type bridge && ip addr add {network}{laptop}/24 dev br0 && ip link set br0 up
for n in {numbers}; do
  ip netns add m$n
  ip link add v$n type veth peer name eth0 netns m$n
  ip link set v$n master br0 up
  ip netns exec m$n unshare -m -p -u -f --mount-proc --kill-child bash {folder}/machine.sh $n &
done
touch {folder}/ready
wait
"""

_MACHINE = """
set -e
hostname m$1
ip link set lo up && ip addr add {network}$1/24 dev eth0 && ip link set eth0 up
for path in {needed}; do
  mkdir -p {folder}/home$1/$path && mount --rbind {home}/$path {folder}/home$1/$path
done
printf '127.0.0.1 localhost\\n{network}%s m%s\\n' $1 $1 > {folder}/hosts$1 && mount --bind {folder}/hosts$1 /etc/hosts
mount -t tmpfs tmpfs /tmp/ray && mount -t tmpfs -o size=1g tmpfs /dev/shm
mount --rbind {folder}/home$1 {home}
exec {sshd} -D -o HostKey={folder}/host_key -o PasswordAuthentication=no -o UsePAM=no -o PidFile=none
"""

_RAY = """#!{home}/.rstream-env/bin/python
from ray.scripts.scripts import main
main()
"""


def missing() -> str:
    """What this machine lacks for it; empty if nothing."""
    lacks = [name for name in ("unshare", "nsenter", "ip", "ssh", "rsync", "sshd") if _find(name) is None]
    if lacks:
        return f"needs {', '.join(lacks)} (on Debian: apt-get install openssh-server openssh-client rsync iproute2)"
    return "" if os.geteuid() == 0 else "needs root, for namespaces"


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@dataclass(frozen=True)
class Machines:
    """Some machines that run, and a laptop in their network."""

    folder: Path
    outer: psutil.Process
    addresses: list[str]

    @property
    def key(self) -> Path:
        """The key that logs in on all of them."""
        return self.folder / "key"

    def call(self, *command: str, cwd: Path, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a command on the laptop."""
        environment = {
            "HOME": str(self.folder / f"home{LAPTOP}"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_UP_enable_autoscaler_v2": "0",
            "TERM": "dumb",
        }
        inside = ["nsenter", "-t", str(self.outer.pid), "-n", "-m", "-p", f"--wd={cwd}", "--", *command]
        return subprocess.run(inside, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)

    def commands(self, part: str) -> list[str]:
        """The command lines of all processes on the machines that have this in them."""
        found = []
        for process in self.outer.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                line = " ".join(process.cmdline())
                if part in line:
                    found.append(line)
        return found


@contextlib.contextmanager
def machines(folder: Path, count: int) -> Iterator[Machines]:
    """So many machines for as long as the block lasts; afterwards nothing of them is left."""
    numbers = list(range(11, 11 + count))
    _prepare(folder, numbers)
    home = Path.home()
    needed = {Path(path) for path in (sys.base_prefix, sys.prefix) if Path(path).is_relative_to(home)}
    words = {
        "folder": folder,
        "home": home,
        "network": NETWORK,
        "laptop": LAPTOP,
        "numbers": " ".join(map(str, numbers)),
        "needed": " ".join(str(path.relative_to(home)) for path in sorted(needed)),
        "sshd": _find("sshd"),
    }
    (folder / "switch.sh").write_text(_SWITCH.format(**words))
    (folder / "machine.sh").write_text(_MACHINE.format(**words))
    apart = ["unshare", "-n", "-m", "-p", "-f", "--mount-proc", "--kill-child", "bash", str(folder / "switch.sh")]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(apart, stdout=log, stderr=log)
    try:
        wait_until(lambda: (folder / "ready").exists() or process.poll() is not None, "the machines to start")
        outer = psutil.Process(process.pid).children()[0]
        found = Machines(folder, outer, [f"{NETWORK}{number}" for number in numbers])
        login = ["ssh", "-i", str(found.key), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        for address in found.addresses:
            answers = [*login, "-o", "ConnectTimeout=2", f"root@{address}", "true"]
            wait_until(
                lambda command=answers: found.call(*command, cwd=folder).returncode == 0,  # type: ignore[misc]
                f"a login on {address}; {(folder / 'log').read_text()}",
            )
        yield found
    finally:
        process.kill()
        process.wait()


def _prepare(folder: Path, numbers: list[int]) -> None:
    """Keys, homes, and what an installation without a network needs."""
    for name in ("key", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    wheels = folder / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "download", "--no-deps", "-d", str(wheels), "setuptools>=77"], check=True)
    for number in (LAPTOP, *numbers):
        home = folder / f"home{number}"
        (home / ".ssh").mkdir(parents=True, mode=0o700)
        (home / ".ssh" / "authorized_keys").write_text((folder / "key.pub").read_text())
        (home / ".bashrc").write_text(f"export PATH=$PATH:{sys.base_prefix}/bin\n")
        (home / ".config" / "pip").mkdir(parents=True)
        (home / ".config" / "pip" / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
        environment = home / ".rstream-env"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        packages = environment / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        (packages / "installed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        (environment / "bin" / "ray").write_text(_RAY.format(home=Path.home()))
        (environment / "bin" / "ray").chmod(0o755)
