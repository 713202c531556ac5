"""Every experiment by its id."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache

from rstream.errors import UsageError
from rstream.lab.experiment import Experiment


@cache
def experiments() -> dict[str, Experiment]:
    """All of them, in the order of experiments.md."""
    from rstream.lab.rows import es, me, psps, ra, sl

    return {
        experiment.id: experiment
        for rows in (es.EXPERIMENTS, ra.EXPERIMENTS, psps.EXPERIMENTS, me.EXPERIMENTS, sl.EXPERIMENTS)
        for experiment in rows
    }


def find(identity: str) -> Experiment:
    """The experiment of that id, in any case of letters."""
    known = {name.lower(): experiment for name, experiment in experiments().items()}
    if identity.lower() in known:
        return known[identity.lower()]
    rows = [experiment.id for name, experiment in known.items() if name[:-1] == identity.lower() and name[-1].isalpha()]
    near = rows or [known[name].id for name in get_close_matches(identity.lower(), known, n=1)]
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    raise UsageError(f"lab: no experiment {identity!r}{hint}; there are {', '.join(experiments())}")
