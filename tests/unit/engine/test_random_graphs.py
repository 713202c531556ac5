"""Random topologies on one to four workers, links that break included: the outputs equal a serial reference."""

from __future__ import annotations

import pytest

from tests.unit.engine import random_graphs


@pytest.mark.parametrize("seed", range(40))
def test_a_random_topology_gives_what_the_serial_reference_gives(seed: int) -> None:
    random_graphs.check(seed)


@pytest.mark.long
def test_thousands_of_random_topologies_give_what_the_serial_reference_gives() -> None:
    for seed in range(40, 3000):
        random_graphs.check(seed)
