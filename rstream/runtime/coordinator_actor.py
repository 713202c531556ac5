"""The coordinator as an actor of the cluster: finding it by its name, and starting the one there may be."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rstream.runtime import cluster

NAME = "rstream-coordinator"
CALLS_OF_WORKERS = ("report", "logged", "failed", "finished", "progressed", "prepared", "gone")
"""They have threads of their own, so that no user's request waits behind them."""


def find_coordinator() -> Any:
    """The cluster's coordinator; raises ValueError where there is none."""
    return ray.get_actor(NAME, namespace=cluster.NAMESPACE)


def get_coordinator(store: str) -> Any:
    """The cluster's coordinator, started if there is none."""
    from rstream.runtime.coordinator import Coordinator  # workers look for it and need nothing of what it is made of

    for name in CALLS_OF_WORKERS:
        setattr(Coordinator, name, ray.method(concurrency_group="workers")(getattr(Coordinator, name)))
    actor = ray.remote(**cluster.PLACED, max_restarts=-1, concurrency_groups={"workers": 4})(Coordinator)
    return actor.options(
        name=NAME,
        namespace=cluster.NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_concurrency=8,
        # Without the head there is no cluster anyway; on another node the coordinator could be lost with that one too.
        scheduling_strategy=NodeAffinitySchedulingStrategy(cluster.head(), soft=True),
    ).remote(store)
