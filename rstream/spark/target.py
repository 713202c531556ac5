"""Publishes a finished directory in one step: staged beside the target, then switched by rename.

A run that dies leaves the old data whole; what it had staged is removed by the next run. A directory that rstream did
not write is never replaced.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from rstream.errors import DataError
from rstream.spark.location import Location
from rstream.spark.storage import Storage

MANIFEST = "_manifest.json"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


class Target:
    """A directory to be made or replaced as a whole."""

    def __init__(self, storage: Storage, kind: str, dataset: str) -> None:
        self._storage = storage
        self._content = (kind, dataset)
        self._location = storage.location
        me = f"{re.sub(r'[^A-Za-z0-9]', '', socket.gethostname())}-{os.getpid()}"
        self.staging = self._location.sibling(f".{self._location.name}.staging-{me}")
        self._old = self._location.sibling(f".{self._location.name}.old-{me}")

    @contextmanager
    def staged(self) -> Iterator[str]:
        """The staging directory to write into; removed again unless `publish` has moved it."""
        self._clear_up()
        self._refuse_what_is_not_ours()
        self._storage.make_directory(self.staging)
        try:
            yield self.staging
        finally:
            self._storage.delete(self.staging)

    def manifest(self) -> dict[str, Any] | None:
        """The manifest of what is published now."""
        path = self._location.child(MANIFEST)
        if not self._storage.exists(path):
            return None
        try:
            manifest = json.loads(self._storage.read_text(path))
        except ValueError:
            return None
        return manifest if isinstance(manifest, dict) else None

    def is_whole(self, files: list[dict[str, Any]]) -> bool:
        """Whether the files that a manifest lists are all there, with their sizes, and no others."""
        found = {file.name: file.size_bytes for file in self._storage.walk(self._location.uri, self._location.uri)}
        return found == {file["path"]: file["bytes"] for file in files}

    def publish(self, manifest: dict[str, Any]) -> None:
        """Write the manifest and let the staged directory take the target's place."""
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        self._storage.write_text(f"{self.staging}/{MANIFEST}", text)
        if not self._storage.exists(self._location.uri):
            self._storage.rename(self.staging, self._location.uri)
            return
        if _exchange(self._location, self.staging):
            return  # what is now called staging is the old data, which `staged` removes
        self._storage.rename(self._location.uri, self._old)
        self._storage.rename(self.staging, self._location.uri)
        self._storage.delete(self._old)

    def _clear_up(self) -> None:
        """Finish or remove what runs on this host left behind when they were killed; refuse to race a live one."""
        above = self._location.sibling("")
        if not self._storage.is_directory(above):
            return
        mine = re.compile(rf"\.{re.escape(self._location.name)}\.(staging|old)-{self.staging.split('-')[-2]}-(\d+)$")
        for name in self._storage.children(above):
            left = mine.match(name)
            if left is None:
                continue
            kind, pid = left.group(1), int(left.group(2))
            if pid != os.getpid() and psutil.pid_exists(pid):
                raise DataError(f"{self._location.text}: process {pid} is writing there now; wait for it or end it")
            if kind == "old" and not self._storage.exists(self._location.uri):
                self._storage.rename(self._location.sibling(name), self._location.uri)  # killed between two renames
            else:
                self._storage.delete(self._location.sibling(name))

    def _refuse_what_is_not_ours(self) -> None:
        uri, text = self._location.uri, self._location.text
        if not self._storage.exists(uri):
            return
        if not self._storage.is_directory(uri):
            raise DataError(f"{text}: a directory is wanted here, and there is a file; name another target")
        old = self.manifest()
        if old is None and self._storage.children(uri):
            raise DataError(f"{text}: holds files that rstream did not write; name an empty or a new directory")
        if old is not None and (old.get("kind"), old.get("dataset")) != self._content:
            holds = f"{old.get('kind')} of {old.get('dataset')!r}"
            raise DataError(f"{text}: holds the {holds}, which is not replaced by something else; name another target")


def _exchange(location: Location, staging: str) -> bool:
    """Swap two local directories atomically, where the kernel can; False where it cannot."""
    if location.local is None:
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    beside = Path(staging.removeprefix("file:"))
    done = rename(_AT_FDCWD, os.fsencode(beside), _AT_FDCWD, os.fsencode(location.local), _RENAME_EXCHANGE)
    if done != 0 and ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
        raise DataError(f"{location.text}: cannot be replaced ({os.strerror(ctypes.get_errno())})")
    return bool(done == 0)
