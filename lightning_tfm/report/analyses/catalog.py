"""Every analysis of a study, in the order in which a report names what it found."""

from collections.abc import Callable
from typing import Any

from lightning_tfm.report.analyses import (
    agreement,
    calibration,
    compute_multiplier,
    factors,
    head_ablation,
    layer_table,
    length_extrapolation,
    quality,
    row_tuning,
    score_by_length,
    softmax,
    training_setup,
)
from lightning_tfm.report.summary import Analysis, Summary

ANALYSES: list[Analysis[Any]] = [
    row_tuning.ANALYSIS,
    compute_multiplier.ANALYSIS,
    training_setup.ANALYSIS,
    agreement.ANALYSIS,
    agreement.LAST_EIGHTH,
    factors.ANALYSIS,
    length_extrapolation.ANALYSIS,
    softmax.ANALYSIS,
    layer_table.ANALYSIS,
    quality.ANALYSIS,
    head_ablation.ANALYSIS,
    score_by_length.ANALYSIS,
    calibration.ANALYSIS,
]


def findings(report: Summary) -> list[tuple[Analysis[Any], Any]]:
    """Every analysis that found something, and what."""
    return [(analysis, report.analyses[analysis.key]) for analysis in ANALYSES if analysis.key in report.analyses]


def notes_of_analyses(report: Summary, shows: Callable[[Analysis[Any]], bool] = lambda analysis: True) -> list[str]:
    """Below a table: of those analyses whose notes it shows."""
    return [line for analysis, what in findings(report) if shows(analysis) for line in analysis.notes(what, report)]
