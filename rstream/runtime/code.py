"""User code on its way to workers: the target's folder as one archive, named by its content.

The archive goes into the coordinator's store once per content; each worker unpacks it into a cache of its node and puts
it first on its path before it loads the topology. Folders that nobody has used for a day are removed. A worker
serves one topology, so two topologies may each bring a `helpers.py`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator

from rstream.clock import SystemClock
from rstream.errors import TargetError

ARCHIVE_BYTES_MAX = 64 << 20
UNUSED_S = 24 * 3600.0
"""So long a folder stays in the cache after a worker last began to use it."""
_SKIPPED = {"__pycache__", "node_modules", "build", "dist"}
_FIXED_DATE = (2020, 1, 1, 0, 0, 0)


def pack_folder(folder: str) -> tuple[str, bytes]:
    """(content hash, archive) of a folder; the same files give the same hash."""
    buffer = io.BytesIO()
    total = 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _files(folder):
            total += os.path.getsize(path)
            if total > ARCHIVE_BYTES_MAX:
                raise TargetError(
                    f"the folder {folder} holds more than {ARCHIVE_BYTES_MAX >> 20} MB, too much to send to workers; "
                    "move the topology into a folder of its own"
                )
            info = zipfile.ZipInfo(os.path.relpath(path, folder), _FIXED_DATE)
            with open(path, "rb") as file:
                archive.writestr(info, file.read())
    content = buffer.getvalue()
    return hashlib.sha256(content).hexdigest()[:32], content


def _files(folder: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name not in _SKIPPED
            and not os.path.exists(os.path.join(root, name, "pyvenv.cfg"))
        )
        for name in sorted(files):
            path = os.path.join(root, name)
            if not name.startswith(".") and os.path.isfile(path):
                yield path


def unpack(code: str, archive: bytes) -> str:
    """The folder in this node's cache that holds an archive's files; it stays for as long as this process lives."""
    cache = os.path.join(tempfile.gettempdir(), f"rstream-{os.getuid()}", "code")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    folder = os.path.join(cache, code)
    while not _hold(folder):
        beside = tempfile.mkdtemp(dir=cache)
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            opened.extractall(beside)
        try:
            os.rename(beside, folder)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            if not os.path.isdir(folder):  # else another worker of this node was quicker with the same files
                raise
    trim(cache)
    return folder


def _hold(folder: str) -> bool:
    """Lock a folder against `trim` until this process ends; False where it is not, or no longer, there."""
    try:
        lock = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        if os.stat(folder).st_ino == os.fstat(lock).st_ino:
            os.utime(folder)
            _locks.append(lock)
            return True
    except FileNotFoundError:
        pass  # it was trimmed while we waited for the lock
    os.close(lock)
    return False


_locks: list[int] = []


def trim(cache: str) -> None:
    """Remove folders that no process uses and none has begun to use for `UNUSED_S`."""
    for entry in os.scandir(cache):
        with contextlib.suppress(OSError):  # another process trims too, or uses the folder
            if SystemClock.now() - entry.stat().st_mtime < UNUSED_S:
                continue
            lock = os.open(entry.path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                gone = tempfile.mkdtemp(dir=cache)
                os.rename(entry.path, gone)
                shutil.rmtree(gone, ignore_errors=True)
            finally:
                os.close(lock)


def use(folder: str) -> None:
    """Make a folder the first place that imports look at."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
