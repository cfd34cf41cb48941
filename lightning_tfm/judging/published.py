"""Other people's numbers beside ours, with the words that this project has for that (report/wording/verdict.py)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.judging.scores import Aim, number, printable, records
from lightning_tfm.judging.verdicts import Judged, Judgement
from lightning_tfm.metrics import Metric
from lightning_tfm.report.wording.verdict import judge


def with_published(judgement: Judgement, path: Path, row: str) -> Judgement:
    """`path`: a line per row, base's too, with columns of the same names. A published number is a single run's, taken
    to be as noisy as one here: of a standard deviation that is the rows' typical one. Raises UserError."""
    found: dict[str, dict[str, float]] = {}
    for line, record in records(path):
        if not (name := printable(str(record.get(row, "")))):
            raise UserError(f"{path}, line {line}: no '{row}'")
        if name in found:
            raise UserError(f"{path}, line {line}: row '{name}' is there twice")
        values = {aim.name: number(record.get(aim.name), aim, f"{path}, line {line}") for aim in judgement.aims}
        found[name] = {key: value for key, value in values.items() if value is not None}
    if judgement.base not in found:
        raise UserError(f"{path}: no row '{judgement.base}', which the published differences are to")
    made = {}
    for aim in judgement.aims:
        made[aim.name] = [_beside(one, found, judgement, aim) for one in judgement.rows[aim.name]]
    return replace(judgement, rows=made)


def _beside(one: Judged, found: Mapping[str, Mapping[str, float]], judgement: Judgement, aim: Aim) -> Judged:
    own, of_base = found.get(one.row, {}).get(aim.name), found[judgement.base].get(aim.name)
    if own is None or of_base is None or not one.verdict:
        return one
    published = aim.tested(own) - aim.tested(of_base)
    if one.evidence is None or math.isnan(one.evidence.p):
        return replace(one, published=published)
    sds = [x.sd / (100 if aim.log else 1) for x in judgement.rows[aim.name] if x.sd > 0]
    sigma = math.exp(sum(map(math.log, sds)) / len(sds))
    metric = Metric(aim.name, aim.name, 3, 3, lower_is_better=aim.lower, log=aim.log, sigma=sigma, same_unit=True)
    e = replace(one.evidence, equivalent=float(one.evidence.equivalence(metric.clear)))
    said = judge(e, published, metric, full_size=False, to=judgement.base)
    return replace(one, published=published, verdict=said.word, why=said.why, beside=said.beside)
