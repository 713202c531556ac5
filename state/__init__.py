"""Keyed state, snapshots, erasure coding and backups; nothing of the runtime."""

from rstream.state.keyed import KeyedState, ListState, MapState, ValueState
from rstream.state.timers import Timer, Timers

__all__ = ["KeyedState", "ListState", "MapState", "Timer", "Timers", "ValueState"]
