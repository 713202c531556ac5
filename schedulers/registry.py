"""Policies by name: the eleven that come with rstream, and whatever else is installed.

A package adds one with an entry point of the group `rstream.schedulers` that names a policy class. Nothing is
imported before it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rstream.errors import PolicyError
from rstream.schedulers.policy import Parameters, Policy

GROUP = "rstream.schedulers"

BUILT_IN: Mapping[str, str] = {
    "es": "rstream.schedulers.es:EsStream",
    "ra": "rstream.schedulers.ra:RaStream",
    "psps": "rstream.schedulers.psps:Psps",
    "me": "rstream.schedulers.me:MeStream",
    "sl": "rstream.schedulers.sl:SlStream",
    "static": "rstream.schedulers.static:Static",
    "even": "rstream.schedulers.even:Even",
    "rstorm": "rstream.schedulers.rstorm:RStorm",
    "drs": "rstream.schedulers.drs:Drs",
    "sp-ant": "rstream.schedulers.spant:SpAnt",
    "dabs": "rstream.schedulers.dabs:Dabs",
}


@cache
def _installed() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> tuple[str, ...]:
    """Every known name, the built-in ones first.

    >>> names()[:5]
    ('es', 'ra', 'psps', 'me', 'sl')
    """
    return (*BUILT_IN, *sorted(set(_installed()) - set(BUILT_IN)))


def policy_class(name: str) -> type[Policy]:
    """The class behind a name; a built-in name cannot be taken over by an installed package.

    >>> policy_class("psp")
    Traceback (most recent call last):
    ...
    rstream.errors.PolicyError: unknown policy 'psp' (did you mean 'psps'?); there are es, ra, psps, me, sl, static, \
even, rstorm, drs, sp-ant, dabs
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found: type[Policy] = getattr(importlib.import_module(module), attribute)
        return found
    if name in _installed():
        return _load(_installed()[name])
    near = get_close_matches(str(name), names(), n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise PolicyError(f"unknown policy {name!r}{hint}; there are {', '.join(names())}")


def _load(point: EntryPoint) -> type[Policy]:
    try:
        found = point.load()
    except Exception as error:
        raise PolicyError(f"policy {point.name!r}: entry point {point.value} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and callable(getattr(found, "plan", None))):
        raise PolicyError(f"policy {point.name!r}: entry point {point.value} must name a class with `plan`")
    return found


def parameters_class(name: str) -> type[Parameters]:
    """The parameter model of a policy."""
    return getattr(policy_class(name), "Parameters", Parameters)


def make(name: str, parameters: Mapping[str, Any] | None = None) -> Policy:
    """A policy of that name, with these parameters over its defaults."""
    cls, values = policy_class(name), parameters_class(name).read(name, parameters or {})
    return cls(values)  # type: ignore[call-arg]  # a Protocol cannot declare the constructor
