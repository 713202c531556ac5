"""Where the coordinator's journal is kept: Ray's own key-value store, or any folder that pyarrow.fs can reach.

A store maps names to bytes; a write is there as a whole or not at all.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import quote, unquote

from rstream.errors import ConfigError

_NAMESPACE = b"rstream"
_UNFINISHED = "%new"
"""The end of a file's name while it is written: no quoted name can end so, whatever a topology is called."""


class Store(Protocol):
    """Names to bytes."""

    def put(self, name: str, content: bytes) -> None: ...

    def get(self, name: str) -> bytes | None: ...

    def delete(self, name: str) -> None: ...

    def names(self, prefix: str) -> list[str]: ...


class RayStore:
    """Ray's key-value store; it lives as long as the head node (or its Redis)."""

    def put(self, name: str, content: bytes) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_put(name.encode(), content, overwrite=True, namespace=_NAMESPACE)

    def get(self, name: str) -> bytes | None:
        from ray.experimental import internal_kv

        content: bytes | None = internal_kv._internal_kv_get(name.encode(), namespace=_NAMESPACE)
        return content

    def delete(self, name: str) -> None:
        from ray.experimental import internal_kv

        internal_kv._internal_kv_del(name.encode(), namespace=_NAMESPACE)

    def names(self, prefix: str) -> list[str]:
        from ray.experimental import internal_kv

        found = internal_kv._internal_kv_list(prefix.encode(), namespace=_NAMESPACE)
        return sorted(name.decode() for name in found)


class FolderStore:
    """Files below a pyarrow.fs URI; a file is written beside its place and then moved there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FolderStore(f"file://{folder}")
    ...     store.put("topology/a/b", b"record")
    ...     store.names("topology/"), store.get("topology/a/b")
    (['topology/a/b'], b'record')
    """

    def __init__(self, uri: str) -> None:
        import pyarrow
        from pyarrow import fs

        try:
            self._fs, self._root = fs.FileSystem.from_uri(uri)
            self._fs.create_dir(self._root, recursive=True)
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise ConfigError(f"coordinator.store: cannot use {uri!r}: {error}") from None

    def _path(self, name: str) -> str:
        return f"{self._root}/{quote(name, safe='')}"

    def put(self, name: str, content: bytes) -> None:
        path = self._path(name)
        with self._fs.open_output_stream(path + _UNFINISHED) as file:
            file.write(content)
        self._fs.move(path + _UNFINISHED, path)

    def get(self, name: str) -> bytes | None:
        try:
            with self._fs.open_input_stream(self._path(name)) as file:
                content: bytes = file.read()
                return content
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        try:
            self._fs.delete_file(self._path(name))
        except FileNotFoundError:
            return

    def names(self, prefix: str) -> list[str]:
        from pyarrow import fs

        found = self._fs.get_file_info(fs.FileSelector(self._root))
        names = [unquote(info.base_name) for info in found if not info.base_name.endswith(_UNFINISHED)]
        return sorted(name for name in names if name.startswith(prefix))


def open_store(where: str) -> Store:
    """The store that `coordinator.store` names."""
    return RayStore() if where == "ray" else FolderStore(where)
