"""PySpark jobs: ingest, synthesise and replay data sets."""
