"""docs/results/worth.md says what the committed records say."""

import math
import re
from pathlib import Path

import pytest

from lightning_tfm.report.across.long import long
from lightning_tfm.report.across.meta_analysis import pooled
from lightning_tfm.report.archive import unpack
from lightning_tfm.report.build import make

ROOT = Path(__file__).parents[3]
STUDIES = {"miniature": "table3", "multi30k": "multi30k", "manpages": "manpages", "tatoeba": "tatoeba"}
STUDIES |= {"tatoeba-8-epochs": "tatoeba-8-epochs"}


def percent(log: float, digits: int = 0) -> str:
    return f"{100 * math.expm1(log):+.{digits}f}"


@pytest.mark.long
def test_the_table_of_all_studies(tmp_path):
    for folder in STUDIES:
        unpack(ROOT / "experiments" / "results" / folder / "records.tar.xz", tmp_path)
    reports = [make(name, tmp_path) for name in STUDIES.values()]
    every = pooled(long(reports)[0])
    over = {r["row"]: r for r in every[every.metric == "ppl"].to_dict("records")}
    lines, held = {}, []
    for name, here in over.items():
        found = [row.ppl.difference for r in reports for row in r.summary.rows if row.name == name]
        paper = found[0].paper
        held += [a.lower <= b.estimate <= a.upper for a in found for b in found if a is not b]
        unseen = f"[{percent(here['unseen lower'])}, {percent(here['unseen upper'])}]"
        side = sum((d.estimate > 0) == (paper > 0) for d in found) if paper else ""
        studies = [f"**{percent(d.estimate)}**" if d.lower * d.upper > 0 else percent(d.estimate) for d in found]
        unseen = unseen if here["word"] == "undecided" else f"**{unseen}**"
        lines[name] = [percent(paper, 1), *studies, str(side), unseen]
    page = (ROOT / "docs" / "results" / "worth.md").read_text()
    printed = [re.split(r" *\| *", line.strip("|\n ")) for line in page.splitlines() if re.match(r"\| [A-Eb]", line)]
    assert {name: cells for name, _, *cells in printed} == lines
    assert f"{sum(held)} of {len(held)} cases ({sum(held) / len(held):.0%})".replace("%", " %") in page
