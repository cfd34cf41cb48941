"""How long a study trains, beside the paper: the ratios that `miniature.hold: ratios` holds, of any study's base."""

import math
from collections import Counter
from dataclasses import dataclass, field
from statistics import fmean

from lightning_tfm.data.dataset import Prepared
from lightning_tfm.plural_words import listed, plural
from lightning_tfm.registry import SCHEDULES
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Analysis, Summary
from lightning_tfm.report.tables import columns


@dataclass(frozen=True)
class Regime:
    """Of base, in the ratios that `miniature.hold: ratios` holds; None is not known."""

    trained: float
    """target pieces a parameter"""
    unique: float | None
    """different ones among them; None where the text is not here"""
    warmup: float
    """share of the steps"""
    last_rate: float | None
    """of the peak"""
    devices: dict[str, int] = field(default_factory=dict, metadata={"key": ""})
    """GPUs, or CPU -> runs of the study trained there"""


PAPER = Regime(trained=40.0, unique=2.0, warmup=0.04, last_rate=0.20)
"""study/ratios.py says where from"""


def find(cells: Cells, report: Summary) -> Regime | None:
    """None without a run of base that kept its pieces."""
    study, store = cells.study, cells.root / "data" / cells.study.store
    runs = [cell.record for cell in cells.of(study.base_row or "") if cell.record.target_tokens]
    if not runs:
        return None
    exact, parameters = study.base.scaled(), runs[0].parameters.total
    t, unique = exact.training, None
    if (store / "card.json").is_file():
        train = Prepared(store).train
        source, target = train.source_lengths + 1, train.target_lengths + 1
        unique = int(target[(source <= exact.data.max_len) & (target <= exact.data.max_len)].sum()) / parameters
    last = None if t.schedule not in SCHEDULES else 0.0
    if t.schedule == "inverse_sqrt":
        last = min(1.0, math.sqrt(t.warmup / t.steps))
    trained = fmean(run.target_tokens or 0 for run in runs) / parameters
    devices = Counter(", ".join(dict.fromkeys(cell.record.hardware.gpus)) or "CPU" for cell in cells.runs)
    return Regime(trained, unique, t.warmup / t.steps, last, dict(devices))


def notes(regime: Regime, report: Summary) -> list[str]:
    """In a sentence, the paper's in brackets where it prints any of the rows."""
    of_the_paper = columns.of_the_paper(report.rows)

    def beside(paper: str) -> str:
        return f" ({paper})" * of_the_paper

    pieces = (
        f"{regime.trained:.2g} training target tokens per parameter of base{beside(f'the paper {PAPER.trained:.2g}')}"
    )
    if regime.unique:
        epochs = f"{regime.trained / regime.unique:.2g} epochs{beside(f'{PAPER.trained / (PAPER.unique or 1):.2g}')}"
        pieces = f"{regime.unique:.2g} unique{beside(f'{PAPER.unique:.2g}')} and {pieces}, {epochs}"
    ends = f"warm-up {100 * regime.warmup:.0f} % of the steps{beside(f'{100 * PAPER.warmup:.0f} %')}"
    last = ""
    if regime.last_rate is not None:
        last = f", rate at the end {regime.last_rate:.2f} of its peak{beside(f'{PAPER.last_rate:.2f}')}"
    return [f"training: {pieces}; {ends}{last}", *on_several_devices(regime, report)]


def on_several_devices(regime: Regime, report: Summary) -> list[str]:
    """That times of rows do not compare, where a CPU trained some runs and a GPU others."""
    if len(regime.devices) < 2:
        return []
    devices = listed([f"{plural(count, 'run')} on {device}" for device, count in regime.devices.items()])
    return [f"trained on several devices, {devices}: their seconds do not compare, and rounding moves scores"]


ANALYSIS = Analysis(key="regime", find=find, notes=notes, brief=on_several_devices)
