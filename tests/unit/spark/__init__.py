"""Unit tests of what needs no Spark."""
