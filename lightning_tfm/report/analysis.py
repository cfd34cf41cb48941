"""An analysis of a study: what it finds in the cells, and where a report says it. catalog.py lists all of them.

A new one is a file in analyses/ that ends with an `Analysis`, and its line in `analyses/catalog.py:ANALYSES`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lightning_tfm.report.blocks import Section

if TYPE_CHECKING:
    from lightning_tfm.report.records import Cells
    from lightning_tfm.report.summary import Summary

F = TypeVar("F")


def nothing(result: Any, report: "Summary") -> Sequence[Any]:
    """Of an analysis that says nothing there."""
    return []


@dataclass(frozen=True, kw_only=True)
class Analysis(Generic[F]):
    """Of one kind. What says something takes what was found and the report that it is part of."""

    key: str
    """of what was found in Summary.analyses, and in JSON"""
    find: "Callable[[Cells, Summary], F | None]"
    """None where it does not apply; the report holds rows, and what earlier analyses of the list found"""
    sections: "Callable[[F, Summary], Sequence[Section]]" = nothing
    """of the page; Section.after says where"""
    lead: "Callable[[F, Summary], Sequence[str]]" = nothing
    """sentences on top of the page and of other headlines"""
    closing: "Callable[[F, Summary], Sequence[str]]" = nothing
    """the same, after what was found of single rows"""
    notes: "Callable[[F, Summary], Sequence[str]]" = nothing
    """below the table"""
    brief: "Callable[[F, Summary], Sequence[str]]" = nothing
    """below the table in a terminal"""
    on_dashboard: bool = False
    """whether the dashboard's page of the study shows the pictures of its sections, below the main figure"""
    json: bool = True
    """whether what was found is in JSON"""
    without_tests: bool = False
    """whether a table without tests has it, too"""
    in_text: bool = False
    """whether text and Markdown have its sections, too"""
