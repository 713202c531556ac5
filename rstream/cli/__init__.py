"""The `rstream` command: one module a verb or group of verbs, wired up in `main`."""
