"""`format("rstream")`: DataFrames into a topology's ingest source, and a topology's committed output as DataFrames.

Spark finds it by the module `pyspark_rstream`. Writing takes the options `topology` (with `address`), or `workers` and
`token` (or `tokenFile`), and `step` where there are several ingest sources; reading takes the folder of a file sink.
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
        self._target: Any = None
        if "topology" in options:
            from rstream.spark.input_writer import target_of

            self._target = target_of(options)  # once: commits, each a process, need not ask Ray again

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "rstream"

    def schema(self) -> Any:
        """Of what is read: the columns of the first file, or lines of JSON as text."""
        from rstream.spark.output_reader import Folder

        return Folder.of(self.options).schema()

    def reader(self, schema: Any) -> Any:
        """All that is committed now."""
        from rstream.spark.output_reader import BatchReader, Folder

        return BatchReader(Folder.of(self.options), schema)

    def streamReader(self, schema: Any) -> Any:
        """What is committed, as it comes."""
        from rstream.spark.output_reader import Folder, StreamReader

        return StreamReader(Folder.of(self.options), schema, self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """All rows, once; where `staging` names a folder, once for ever."""
        from rstream.spark.input_writer import BatchWriter, delivery, passing_folder, target_of

        named = self.options.get("staging")
        target = self._target or target_of(self.options)
        return BatchWriter(delivery(target, named or passing_folder(), schema, overwrite), bool(named))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        """Every batch of the query once."""
        from rstream.spark.input_writer import StreamWriter, delivery, target_of

        checkpoint = self.options.get("checkpointLocation", "").rstrip("/")
        staging = self.options.get("staging") or (f"{checkpoint}/rstream" if checkpoint else "")
        if not staging:
            raise DataError("rstream: name a checkpointLocation with .option(...); batches are kept there until sent")
        return StreamWriter(delivery(self._target or target_of(self.options), staging, schema, overwrite))
