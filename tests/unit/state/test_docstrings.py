"""The examples in the docstrings of the state modules run as written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import rstream.state
import rstream.testing

MODULES = [
    info.name
    for package in (rstream.state, rstream.testing)
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
