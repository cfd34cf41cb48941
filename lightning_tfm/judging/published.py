"""Other people's numbers beside ours, with the words that this project has for that (report/wording/verdict.py)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lightning_tfm.errors import UserError
from lightning_tfm.judging.scores import Aim, gathered, records
from lightning_tfm.judging.verdicts import Judged, Judgement
from lightning_tfm.metrics import Metric
from lightning_tfm.report.wording.verdict import judge


def with_published(judgement: Judgement, path: Path, row: str) -> Judgement:
    """`path`: a line per row, base's too, with columns of the same names. A published number is a single run's, taken
    to be as noisy as one here: of a standard deviation that is the rows' typical one. Raises UserError."""
    lines = ((place, {**record, "seed": "1"}) for place, record in records(path))
    runs = gathered(str(path), lines, judgement.aims, row, "seed").runs
    if judgement.base not in runs:
        raise UserError(f"{path}: no row '{judgement.base}', which the published differences are to")
    for name, metric, value in ((name, *one) for name, run in runs.items() for one in run["1"].items()):
        if math.isnan(value):
            raise UserError(f"{path}: row '{name}': {metric} is no finite number; leave it empty where it is unknown")
    published = {name: run["1"] for name, run in runs.items()}
    made = {
        aim.name: [_beside(one, published, judgement, aim) for one in judgement.rows[aim.name]]
        for aim in judgement.aims
    }
    return replace(judgement, rows=made)


def _beside(one: Judged, numbers: Mapping[str, Mapping[str, float]], judgement: Judgement, aim: Aim) -> Judged:
    own, of_base = numbers.get(one.row, {}).get(aim.name), numbers[judgement.base].get(aim.name)
    if own is None or of_base is None or not one.verdict:
        return one
    published = aim.tested(own) - aim.tested(of_base)
    if one.evidence is None or math.isnan(one.evidence.p):
        return replace(one, published=published)
    sds = [x.sd / (100 if aim.log else 1) for x in judgement.rows[aim.name] if x.sd > 0]
    sigma = math.exp(sum(map(math.log, sds)) / len(sds))
    metric = Metric(
        aim.name, aim.name, 3, 3, lower_is_better=aim.lower_is_better, log=aim.log, sigma=sigma, same_unit=True
    )
    e = replace(one.evidence, equivalent=float(one.evidence.equivalence(metric.clear)))
    verdict = judge(e, published, metric, full_size=False, to=judgement.base)
    return replace(one, published=published, verdict=verdict.word, why=verdict.why, beside=verdict.beside)
