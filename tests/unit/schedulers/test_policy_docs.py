"""What the documents say about policies is what the code does."""

from __future__ import annotations

import pytest

from rstream.schedulers import document
from tests.golden import ROOT

PAGE = ROOT / "docs" / "policies.md"


def test_the_parameter_tables_are_those_of_the_code() -> None:
    text = PAGE.read_text()
    assert document.fill(text) == text, "run: python -m rstream.schedulers.document docs/policies.md"


@pytest.mark.parametrize("name", document.models())
def test_every_parameter_is_explained(name: str) -> None:
    for field, info in document.models()[name].model_fields.items():
        assert info.description, f"{name}.{field} has no description"
        assert info.description.endswith("."), f"{name}.{field}: a description is a sentence"


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="no markers for 'es'"):
        document.fill("nothing here")
