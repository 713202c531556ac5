"""What a policy is: parameters at construction, then a pure function from a View to a Plan.

A policy keeps nothing in itself. What it must remember from one decision to the next goes out as `memory`, plain JSON
data that the caller stores (the coordinator journals it) and hands in again; randomness comes from the generator that
is passed in. So the same view, memory and seed give the same plan, live, in the lab and in a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from rstream.errors import PolicyError
from rstream.schedulers.plan import Plan
from rstream.schedulers.view import View

Memory = Mapping[str, Any]


class Parameters(BaseModel):
    """The base of every policy's parameters: frozen, unknown names refused, each field documented."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, policy: str, values: Mapping[str, Any]) -> Self:
        """Validate values from a config; the first mistake becomes one clear line.

        >>> class Speed(Parameters):
        ...     window_s: float = 5.0
        >>> Speed.read("demo", {"windows_s": 3})
        Traceback (most recent call last):
        ...
        rstream.errors.PolicyError: policy 'demo': unknown parameter 'windows_s'; did you mean 'window_s'?
        """
        for name in values:
            if name not in cls.model_fields:
                near = get_close_matches(str(name), cls.model_fields, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(cls.model_fields) or 'none'}"
                raise PolicyError(f"policy {policy!r}: unknown parameter {name!r}; {hint}")
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "parameters"
            message = first["msg"].removeprefix("Value error, ")
            raise PolicyError(f"policy {policy!r}: {where}: {message}, got {first['input']!r}") from None


@runtime_checkable
class Policy(Protocol):
    """The seam between deciding and doing."""

    @property
    def name(self) -> str:
        """What `--policy` takes."""
        ...

    @property
    def interval_s(self) -> float:
        """How often it wants to be asked; the view that it gets then covers a window of this length."""
        ...

    def plan(self, view: View, memory: Memory, rng: np.random.Generator) -> tuple[Plan, Memory]:
        """Decide from the view and what was remembered; `memory` is empty at the first call."""
        ...
