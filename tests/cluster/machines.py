"""Machines for tests: namespaces of this one, each with an address and processes of its own, on a switch that can cut
them off.

What they share is the disk, read through this checkout's environment. Those for `ray up` also have a home and an SSH
server each, and install rstream from the checkout as any machine does; what it depends on they find installed, because
there is no network in here.
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
printf '127.0.0.1 localhost\\n{network}%s m%s\\n' $1 $1 > {folder}/hosts$1 && mount --bind {folder}/hosts$1 /etc/hosts
mount -t tmpfs tmpfs /tmp/ray && mount -t tmpfs -o size=1g tmpfs /dev/shm
"""

_BARE = """
touch {folder}/up$1
exec sleep infinity
"""

_AT_HOME = """
for path in {needed}; do
  mkdir -p {folder}/home$1/$path && mount --rbind {home}/$path {folder}/home$1/$path
done
mount --rbind {folder}/home$1 {home}
exec {sshd} -D -o HostKey={folder}/host_key -o PasswordAuthentication=no -o UsePAM=no -o PidFile=none
"""

_RAY = """#!{home}/.rstream-env/bin/python
from ray.scripts.scripts import main
main()
"""


def missing(ssh: bool = True) -> str:
    """What this machine lacks for it; empty if nothing."""
    wanted = ("unshare", "nsenter", "ip", *(("ssh", "rsync", "sshd") if ssh else ()))
    lacks = [name for name in wanted if _find(name) is None]
    if lacks:
        return f"needs {', '.join(lacks)} (on Debian: apt-get install openssh-server openssh-client rsync iproute2)"
    if os.geteuid() != 0:
        return "needs root, for namespaces"
    switch = "mount -t tmpfs tmpfs /run && ip link add v0 type veth peer name v1 && ip link add br0 type bridge"
    tried = subprocess.run(["unshare", "-n", "-m", "-p", "-f", "sh", "-c", switch], capture_output=True, text=True)
    return "" if tried.returncode == 0 else f"the kernel refuses namespaces with a network: {tried.stderr.strip()}"


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

    def on(self, address: str, *command: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command on a machine; its output goes to a file."""
        number = address.removeprefix(NETWORK)
        inside = ["nsenter", "-t", str(self._init(number).pid), "-n", "-m", "-p", "-u", f"--wd={self.folder}", "--"]
        with open(self.folder / f"log{number}", "a") as log:
            return subprocess.Popen(
                [*inside, *command], env={**os.environ, **environment}, stdout=log, stderr=log, text=True
            )

    def processes(self, address: str, part: str) -> list[psutil.Process]:
        """The processes on a machine whose command lines have this in them."""
        found = []
        for process in self._init(address.removeprefix(NETWORK)).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if part in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def _init(self, number: str) -> psutil.Process:
        """A machine's first process."""
        for process in self.outer.children():
            if process.cmdline()[-2:] == [str(self.folder / "machine.sh"), number]:
                return process.children()[0]
        raise AssertionError(f"machine {number} is not there; {(self.folder / 'log').read_text()}")

    def plug(self, address: str, connected: bool) -> None:
        """Pull a machine's network cable at the switch, or put it back."""
        cable = f"v{address.removeprefix(NETWORK)}"
        inside = ["nsenter", "-t", str(self.outer.pid), "-n", "-m", "-p", "--"]
        subprocess.run([*inside, "ip", "link", "set", cable, "up" if connected else "down"], check=True)

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
def machines(folder: Path, count: int, ssh: bool = True) -> Iterator[Machines]:
    """So many machines for as long as the block lasts; afterwards nothing of them is left. Without SSH they also have
    no homes."""
    numbers = list(range(11, 11 + count))
    if ssh:
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
    (folder / "machine.sh").write_text((_MACHINE + (_AT_HOME if ssh else _BARE)).format(**words))
    apart = ["unshare", "-n", "-m", "-p", "-f", "--mount-proc", "--kill-child", "bash", str(folder / "switch.sh")]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(apart, stdout=log, stderr=log)
    try:
        wait_until(lambda: (folder / "ready").exists() or process.poll() is not None, "the machines to start")
        outer = psutil.Process(process.pid).children()[0]
        found = Machines(folder, outer, [f"{NETWORK}{number}" for number in numbers])
        if ssh:
            _wait_for_logins(found)
        else:
            ups = [folder / f"up{number}" for number in numbers]
            wait_until(lambda: all(up.exists() for up in ups), f"the machines; {(folder / 'log').read_text()}")
        yield found
    finally:
        process.kill()
        process.wait()


def _wait_for_logins(found: Machines) -> None:
    login = ["ssh", "-i", str(found.key), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    for address in found.addresses:
        answers = [*login, "-o", "ConnectTimeout=2", f"root@{address}", "true"]
        wait_until(
            lambda command=answers: found.call(*command, cwd=found.folder).returncode == 0,  # type: ignore[misc]
            f"a login on {address}; {(found.folder / 'log').read_text()}",
        )


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
