"""Benchmarks: programs that print a table, or JSON, with ratios to a reference measured in the same run."""
