"""`format("rstream")`: DataFrames into a topology's ingest source, and a topology's committed output as DataFrames.

Spark finds it by the module `pyspark_rstream`. Writing takes the options `topology` (with `address`), or `workers` and
`token` (or `tokenFile`), and `step` where there are several ingest sources; reading takes the folder of a file sink, or
`topology` and the sink's name as `step`.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pyspark.sql.datasource import DataSource

from rstream.errors import DataError


class RstreamSource(DataSource):
    """The data source; Spark makes one of the options of each query, and hands it to all of its processes."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._place: Any = None
        if "topology" in options:
            from rstream.spark.by_name import place_of

            self._place = place_of(options)  # once: commits, each a process, need not ask Ray again

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "rstream"

    def schema(self) -> Any:
        """Of what is read: the columns of the first file, or lines of JSON as text."""
        return self._folder().schema()

    def reader(self, schema: Any) -> Any:
        """All that is committed now."""
        from rstream.spark.output_reader import BatchReader

        return BatchReader(self._folder(), schema)

    def streamReader(self, schema: Any) -> Any:
        """What is committed, as it comes."""
        from rstream.spark.output_reader import StreamReader

        return StreamReader(self._folder(), schema, self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """All rows, once; where `staging` names a folder, once for ever."""
        from rstream.spark.input_writer import BatchWriter, delivery, passing_folder

        named = self.options.get("staging")
        return BatchWriter(delivery(self._target(), named or passing_folder(), schema, overwrite), bool(named))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """Every batch of the query once."""
        from rstream.spark.input_writer import StreamWriter, delivery

        checkpoint = self.options.get("checkpointLocation", "").rstrip("/")
        staging = self.options.get("staging") or (f"{checkpoint}/rstream" if checkpoint else "")
        if not staging:
            raise DataError("rstream: name a checkpointLocation with .option(...); batches are kept there until sent")
        return StreamWriter(delivery(self._target(), staging, schema, overwrite))

    def _folder(self) -> Any:
        from rstream.spark.output_reader import Folder

        return Folder.of(self.options if self._place is None else {"path": self._place.folder})

    def _target(self) -> Any:
        from rstream.spark.input_writer import target_of

        if self._place is None:
            return target_of(self.options)
        if self._place.target is None:
            raise DataError("rstream: rows are sent to an ingest source, and the step that is named is a file sink")
        return self._place.target
