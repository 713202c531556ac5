"""The hosts that do the I/O: embedded, Ray workers, the coordinator actor."""
