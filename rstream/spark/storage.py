"""Files wherever Hadoop can reach them: a thin face on its FileSystem for listing, renaming and checksums.

Every call runs inside the driver's Java, so that `file:`, `hdfs:`, `s3a:` and the rest take the same way, and no
file's content passes through Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rstream.errors import DataError
from rstream.spark.dataset import Reason
from rstream.spark.location import Location

_BUFFER_BYTES = 1 << 16
_HIDDEN = ("_", ".")


@dataclass(frozen=True)
class FileInfo:
    """One file: its full path, its name below the listed root, size and time of last change."""

    path: str
    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class Scan:
    """What reading a file once has shown: checksum, first line, and why it cannot be used (if it cannot)."""

    sha256: str
    first_line: str
    broken: Reason | None
    detail: str = ""


class Storage:
    """The file system of one location."""

    def __init__(self, session: Any, location: Location) -> None:
        self._jvm = session._jvm
        self._conf = session._jsc.hadoopConfiguration()
        self.location = location
        from py4j.protocol import Py4JJavaError

        try:
            self._fs = self._path(location.uri).getFileSystem(self._conf)
        except Py4JJavaError as error:
            reason = str(error.java_exception.getMessage() or error.java_exception).splitlines()[0]
            raise DataError(
                f"{location.text}: this Spark cannot open such a location ({reason}); "
                "a connector comes with --conf spark.jars.packages=..."
            ) from error

    def exists(self, uri: str) -> bool:
        """Whether there is a file or directory."""
        return bool(self._fs.exists(self._path(uri)))

    def is_directory(self, uri: str) -> bool:
        """Whether there is a directory."""
        return self.exists(uri) and bool(self._fs.getFileStatus(self._path(uri)).isDirectory())

    def find(self) -> list[FileInfo]:
        """The files of the location, be it a file, a directory or a pattern; sorted by name."""
        if self.exists(self.location.uri):
            status = self._fs.getFileStatus(self._path(self.location.uri))
            root = status.getPath() if status.isDirectory() else status.getPath().getParent()
            statuses = [status]
        elif self.location.is_pattern:
            root = self._path(self.location.fixed_part)
            statuses = list(self._fs.globStatus(self._path(self.location.uri)) or [])
        else:
            return []
        files: set[FileInfo] = set()
        for status in statuses:
            path = status.getPath()
            files.update(self.walk(path.toString(), root.toString()) if status.isDirectory() else [_info(status, root)])
        return sorted(files, key=lambda file: file.name)

    def walk(self, uri: str, root: str) -> list[FileInfo]:
        """All files below a directory, without those that Spark also takes for hidden."""
        files, base = [], self._path(root)
        found = self._fs.listFiles(self._path(uri), True)
        while found.hasNext():
            info = _info(found.next(), base)
            if not any(part.startswith(_HIDDEN) for part in info.name.split("/")):
                files.append(info)
        return files

    def children(self, uri: str) -> list[str]:
        """The names directly below a directory, hidden ones included."""
        return [status.getPath().getName() for status in self._fs.listStatus(self._path(uri))]

    def make_directory(self, uri: str) -> None:
        """Make a directory and those above it, or say that it cannot be made."""
        if not self._fs.mkdirs(self._path(uri)):
            raise DataError(f"{self.location.text}: cannot be written, no directory can be made beside it")

    def rename(self, source: str, target: str) -> None:
        """Rename, or say what could not be renamed."""
        if not self._fs.rename(self._path(source), self._path(target)):
            raise DataError(f"{source} cannot be renamed to {target}: is the directory above it writable?")

    def delete(self, uri: str) -> None:
        """Delete a file or a whole directory, if it is there."""
        self._fs.delete(self._path(uri), True)

    def read_text(self, uri: str) -> str:
        """A small file's content."""
        stream = self._fs.open(self._path(uri))
        try:
            return bytes(stream.readAllBytes()).decode("utf-8")
        finally:
            stream.close()

    def write_text(self, uri: str, text: str) -> None:
        """Write a small file."""
        stream = self._fs.create(self._path(uri), True)
        try:
            stream.write(bytearray(text.encode("utf-8")))
        finally:
            stream.close()

    def sha256(self, uri: str) -> str:
        """The checksum of a file's bytes."""
        stream = self._digesting(uri)
        try:
            self._drain(stream)
        finally:
            stream.close()
        return self._hex(stream)

    def scan(self, uri: str, *, want_first_line: bool) -> Scan:
        """Read a file to its end: is it whole, what is its checksum, how does it begin?"""
        from py4j.protocol import Py4JJavaError

        broken, detail, first = None, "", ""
        codec = self._jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(self._conf).getCodec(self._path(uri))
        stream = self._digesting(uri)
        try:
            if codec is not None:
                self._drain(codec.createInputStream(stream))
            if want_first_line:
                first = self._first_line(uri, codec)
        except Py4JJavaError as error:
            java = error.java_exception
            ended = java.getClass().getSimpleName() == "EOFException"
            broken = Reason.HALF_WRITTEN_FILE if ended else Reason.UNREADABLE_FILE
            detail = str(java.getMessage() or java.toString()).splitlines()[0]
        finally:
            self._drain(stream)  # whatever is left, so that the checksum covers the whole file
            stream.close()
        return Scan(self._hex(stream), first, broken, detail)

    def _first_line(self, uri: str, codec: Any) -> str:
        stream = self._fs.open(self._path(uri))
        try:
            plain = stream if codec is None else codec.createInputStream(stream)
            reader = self._jvm.org.apache.hadoop.util.LineReader(plain)
            line = self._jvm.org.apache.hadoop.io.Text()
            reader.readLine(line, 1 << 20)
            return str(line.toString())
        finally:
            stream.close()

    def _digesting(self, uri: str) -> Any:
        digest = self._jvm.java.security.MessageDigest.getInstance("SHA-256")
        return self._jvm.java.security.DigestInputStream(self._fs.open(self._path(uri)), digest)

    def _drain(self, stream: Any) -> None:
        nowhere = self._jvm.java.io.OutputStream.nullOutputStream()
        self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(stream, nowhere, _BUFFER_BYTES, False)

    def _hex(self, stream: Any) -> str:
        return bytes(stream.getMessageDigest().digest()).hex()

    def _path(self, uri: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(uri)


def _info(status: Any, root: Any) -> FileInfo:
    path = status.getPath()
    name = path.toString()[len(root.toString()) :].lstrip("/")
    return FileInfo(path.toString(), name, int(status.getLen()), int(status.getModificationTime()))
