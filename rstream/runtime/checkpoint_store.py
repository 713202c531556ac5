"""Where checkpoints are kept: a folder below any URI that pyarrow.fs can reach, a file for each task and checkpoint.

A file is written beside its place and then moved there, so it is there as a whole or not at all; its checksum is
checked when it is read. One worker writes, and reads, one file after the other, as Storm does.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator

import msgspec

from rstream.core.channel import TaskId
from rstream.core.worker_checkpoints import Reading, Saving
from rstream.errors import ConfigError, RStreamError, RunError, StateLost
from rstream.runtime.bounded import Orders
from rstream.runtime.byte_cap import ByteCap
from rstream.state.erasure import Epoch, FragmentReader, Label

_HEAD = struct.Struct("<I")


class Head(msgspec.Struct, array_like=True, frozen=True):
    """What a file begins with."""

    task: str
    epoch: Epoch
    code: str
    length: int
    checksum: int
    pieces: list[int]
    """The sizes of what follows."""


class CheckpointStore:
    """The checkpoints of one run of a topology."""

    def __init__(self, uri: str, run: str = "", node: str = "", bytes_per_s: float | None = None) -> None:
        import pyarrow  # only where checkpoints are kept: it would take every worker longer to start
        from pyarrow import fs

        self._write_cap = ByteCap(bytes_per_s, [f"from {node}", f"to {uri}"])
        self._read_cap = ByteCap(bytes_per_s, [f"from {uri}", f"to {node}"])
        try:
            self._fs, root = fs.FileSystem.from_uri(uri)
            self._root = f"{root.rstrip('/')}/{run}" if run else root
            self._fs.create_dir(self._root, recursive=True)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise ConfigError(f"state.store: cannot use {uri!r}: {error}") from None

    def write(self, saving: Saving) -> None:
        """Write the state of a task at a checkpoint; it is there when this returns."""
        whole = saving.whole
        path = self._path(saving.number, saving.task)
        sizes = [len(piece) for piece in whole.pieces]
        head = msgspec.msgpack.encode(
            Head(whole.label.task, whole.label.epoch, whole.code, whole.length, whole.checksum, sizes)
        )
        self._fs.create_dir(path.rpartition("/")[0], recursive=True)
        with self._fs.open_output_stream(f"{path}.new") as file:
            file.write(_HEAD.pack(len(head)) + head)
            for piece in whole.pieces:
                self._write_cap.wait(len(piece))
                file.write(piece)
        self._fs.move(f"{path}.new", path)

    def read(self, number: int, task: TaskId) -> Iterator[bytes]:
        """The pieces of a task's state at a checkpoint; the last one only if all of them are as they were written."""
        try:
            with self._fs.open_input_stream(self._path(number, task)) as file:
                head = msgspec.msgpack.decode(file.read(_HEAD.unpack(file.read(_HEAD.size))[0]), type=Head)
                reader = FragmentReader(Label(head.task, head.epoch), 0, 1, 0, head.code)
                for size in head.pieces:
                    self._read_cap.wait(size)
                    piece = file.read(size)
                    reader.add(piece)
                    if len(reader.pieces) == len(head.pieces) and reader.finish(head.length, head.checksum) is None:
                        raise StateLost(f"checkpoint {number} of {task} is damaged: its checksum is wrong")
                    yield piece
        except (OSError, struct.error, msgspec.MsgspecError) as error:
            raise StateLost(f"checkpoint {number} of {task} cannot be read: {error}") from None

    def drop_before(self, number: int) -> None:
        """Remove the checkpoints before this one."""
        from pyarrow import fs

        for info in self._fs.get_file_info(fs.FileSelector(self._root)):
            if info.base_name.isdigit() and int(info.base_name) < number:
                self._fs.delete_dir(info.path)

    def _path(self, number: int, task: TaskId) -> str:
        return f"{self._root}/{number}/{task.operator.replace('/', '%2F')}.{task.number}"


class CheckpointIo(threading.Thread):
    """The one thread of a worker that writes and reads checkpoints."""

    def __init__(
        self,
        store: CheckpointStore,
        written: Callable[[Saving], None],
        read: Callable[[Reading, bytes | None], None],
        failed: Callable[[RStreamError], None],
    ) -> None:
        super().__init__(name="rstream-checkpoints", daemon=True)
        self._store, self._written, self._read, self._failed = store, written, read, failed
        self._jobs: Orders[Saving | Reading] = Orders("checkpoints")

    def do(self, jobs: list[Saving] | list[Reading]) -> None:
        """Write or read these, in turn."""
        for job in jobs:
            self._jobs.put(job)

    def run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if isinstance(job, Saving):
                    self._store.write(job)
                    self._written(job)
                else:
                    for piece in self._store.read(job.number, job.task):
                        self._read(job, piece)
                    self._read(job, None)
            except RStreamError as error:
                self._failed(error)
            except OSError as error:
                self._failed(RunError(f"state.store: a checkpoint could not be written: {error}"))
