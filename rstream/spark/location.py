"""A place that a user named: a local path, a pattern of paths, or any URI that Hadoop understands."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rstream.errors import DataError

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):/")
_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Location:
    """What the user wrote, and the same as Hadoop wants it.

    >>> Location.parse("s3a://bucket/days/*.csv").is_pattern
    True
    >>> Location.parse("file:///data/a").local
    PosixPath('/data/a')
    """

    text: str
    uri: str
    local: Path | None  # None for what only Hadoop can reach

    @classmethod
    def parse(cls, text: str) -> Location:
        """A path without a scheme is a local one, also on a cluster whose default is another file system."""
        if not text:
            raise DataError("a path or URI is wanted, got an empty one")
        scheme = _SCHEME.match(text)
        if scheme and scheme.group(1).lower() != "file":
            return cls(text, text.rstrip("/"), None)
        plain = re.sub(r"^[fF][iI][lL][eE]:(//)?(?=/)", "", text) if scheme else text
        path = Path(plain).expanduser().resolve()  # a link must not be replaced by what it points to
        return cls(text, f"file:{path}", path)

    @property
    def is_pattern(self) -> bool:
        """Whether it may name several files by wildcards."""
        return _PATTERN.search(self.uri) is not None

    @property
    def fixed_part(self) -> str:
        """The directory above the first wildcard.

        >>> Location.parse("s3a://bucket/y*/days/*.csv").fixed_part
        's3a://bucket'
        """
        return _PATTERN.split(self.uri, maxsplit=1)[0].rpartition("/")[0]

    def child(self, name: str) -> str:
        """The URI of something below."""
        return f"{self.uri}/{name}"

    def sibling(self, name: str) -> str:
        """The URI of something beside."""
        return f"{self.uri.rpartition('/')[0]}/{name}"

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rpartition("/")[2]

    def check_source(self) -> None:
        """Refuse a local source that is not there before Spark is started for nothing."""
        if self.local is not None and not self.local.exists() and not self.is_pattern:
            raise DataError(f"{self.text}: no such file or directory")

    def check_target(self) -> None:
        """Refuse a local target that cannot become a directory before Spark is started for nothing."""
        if self.local is None:
            return
        if self.local.exists() and not self.local.is_dir():
            raise DataError(f"{self.text}: a directory is wanted here, and there is a file; name another target")
        above = next(parent for parent in self.local.parents if parent.exists())
        if not above.is_dir():
            raise DataError(f"{self.text}: cannot be written, {above} is a file and not a directory")
        try:
            # Trying is the only sure way: permissions say nothing about a file system that is read-only or full.
            Path(tempfile.mkdtemp(prefix=".rstream-", dir=above)).rmdir()
        except OSError as error:
            why = error.strerror or str(error)
            raise DataError(f"{self.text}: cannot be written, {above}: {why}; choose another target") from None


def escape(path: str) -> str:
    """A path whose pattern signs mean themselves.

    >>> escape("file:/data/a[1].csv")
    'file:/data/a\\\\[1\\\\].csv'
    """
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)


def check_apart(source: Location, target: Location) -> None:
    """Refuse a target inside the source and the other way round: the next run would eat its own output."""
    a, b = source.uri, target.uri
    if a == b or a.startswith(b + "/") or b.startswith(a + "/"):
        raise DataError(f"{source.text} and {target.text}: source and target must not lie within each other")
