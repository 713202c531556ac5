"""Ray's autoscaler: how many nodes we need at least. A cluster without one takes note and does nothing."""

from __future__ import annotations

import logging

from ray.autoscaler.sdk import request_resources

_LOG = logging.getLogger(__name__)


def ask_for_nodes(count: int, cpus: float) -> None:
    """At least `count` nodes with `cpus` CPUs each; a lower count than before lets emptied nodes go."""
    _LOG.info("the autoscaler is asked for %d nodes of %g CPUs", count, cpus)
    request_resources(bundles=[{"CPU": max(1, int(cpus))}] * count)
