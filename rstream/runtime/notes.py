"""A note that outlives its process: what a worker is at, in a small file that is mapped into memory.

The kernel keeps what was written when the process ends, however it ends. Whoever reads it has to be on the same node.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import tempfile

from rstream.core.channel import TaskId
from rstream.core.poison import SHOWN_MAX, Evidence

NOTE_BYTES = 4 * SHOWN_MAX + 4096


def _path(worker: str) -> str:
    folder = os.path.join(tempfile.gettempdir(), f"rstream-{os.getuid()}", "notes")
    return os.path.join(folder, hashlib.blake2b(worker.encode(), digest_size=16).hexdigest())


class NoteBook:
    """The note of one worker; the file is made when something is noted first."""

    def __init__(self, worker: str) -> None:
        self._path = _path(worker)
        self._map: mmap.mmap | None = None

    def __call__(self, evidence: Evidence | None) -> None:
        """Write what the worker is at, in place of what it was at before."""
        if self._map is None:
            self._open()
        assert self._map is not None, "opened just now"
        content = b"" if evidence is None else json.dumps(evidence).encode()[: NOTE_BYTES - 4]
        self._map[0:4] = b"\0\0\0\0"  # nothing counts while it is half written
        self._map[4 : 4 + len(content)] = content
        self._map[0:4] = len(content).to_bytes(4, "little")

    def _open(self) -> None:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        with open(self._path, "wb+") as file:
            file.truncate(NOTE_BYTES)
            self._map = mmap.mmap(file.fileno(), NOTE_BYTES)

    def remove(self) -> None:
        """The worker ends as it should: nobody will ask."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)


def take_note(worker: str) -> Evidence | None:
    """What a worker of this node was at when its process ended; None if it was at nothing, or noted nothing."""
    try:
        with open(_path(worker), "rb") as file:
            content = file.read()
        os.unlink(_path(worker))
    except OSError:
        return None
    length = int.from_bytes(content[:4], "little")
    try:
        (operator, number), edge, source, offset, shown = json.loads(content[4 : 4 + length])
    except ValueError:
        return None
    return Evidence(TaskId(operator, number), edge, source, offset, shown)
