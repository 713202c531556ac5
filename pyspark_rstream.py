"""Makes `format("rstream")` known to Spark, which looks for modules of this kind of name in the Python path."""

from rstream.spark.datasource import RstreamSource as DefaultSource

__all__ = ["DefaultSource"]
