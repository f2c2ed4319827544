"""Each version of each operator is imported or listed as not imported; the page about it is up to date."""

from __future__ import annotations

from pathlib import Path

from luminal_onnx.importer import coverage, registry

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def _rows(text: str) -> dict[str, str]:
    """Return the versions that a page states for each operator."""
    cells = [line.split("|") for line in text.splitlines() if line.startswith("| ")]
    return {row[1].strip(): row[2].strip() for row in cells}


def test_the_page_of_operators_is_up_to_date() -> None:
    stated, now = _rows(PAGE.read_text()), _rows(coverage.markdown())
    assert len(now) > 150
    assert stated == now, f"run python -m luminal_onnx.importer.coverage > {PAGE}"


def test_every_registered_version_can_be_met_by_a_supported_opset() -> None:
    for operator in registry.registered():
        if operator.domain == "" and coverage.reachable(operator.name):
            assert operator.since in coverage.reachable(operator.name), f"{operator.name} {operator.since}"


def test_softmax_changed_its_meaning_in_opset_13() -> None:
    assert registry.find("", "Softmax", 12).function is not registry.find("", "Softmax", 13).function
    assert registry.find("", "Softmax", 12) is registry.find("", "Softmax", 11)
