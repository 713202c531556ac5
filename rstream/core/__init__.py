"""The delivery protocol as machines without I/O: events in, instructions out."""
