"""View, Plan and the scheduling policies; nothing of the runtime."""

from rstream.schedulers.base import Plan, Policy, View, diff
from rstream.schedulers.registry import make, names

__all__ = ["Plan", "Policy", "View", "diff", "make", "names"]
