"""Operators with event time: one file each."""
