"""Seeds spent where the verdict is still open, and the correction that repeated (interim) looks require.

At look k every open row, and base, has n_k seeds. The level alpha is spent in shares that sum to one (alpha spending,
Lan and DeMets 1983, added up by Bonferroni); at each look the rows and the claims are corrected at its share. A row
found at any look stays found, so the chance of any false verdict is at most the sum of the shares, whatever stops when
(Maurer and Bretz 2013, for the closed procedure of which Holm at each look is a shortcut). Fixed seeds are the case of
one look.

Most of the level is kept for the last look, as few seeds find little at any level: `late` looks at the first seeds,
once in between and at all seeds, with 0.1, 0.2 and 0.7 of the level. Studies started before these shares keep theirs
(`linear`): a look at every seed, with shares in proportion to the seeds it adds (Kim and DeMets 1987).

A row gets no more seeds where its verdict in perplexity, the primary metric, is known and the claims about it need none
from it, or where it is hopeless: the chance that the last look decides it, predicted from this one and at the most
favourable level, is below `HOPELESS`. Closing rows early can only make findings fewer, true ones and false ones alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lightning_tfm.report.stats.evidence import Evidence
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.wording.verdict_words import OPEN, Verdict
from lightning_tfm.study.sequential import Course

HOPELESS = 0.05


def undecided_rows(summary: Summary) -> tuple[list[str], list[str]]:
    """(rows that more seeds could still decide, rows that are closed without a verdict)."""
    about = {finding.row for claim in summary.claims if claim.verdict in OPEN for finding in claim.findings}
    still: list[str] = []
    hopeless: list[str] = []
    for row in summary.rows:
        if (d := row.primary) is None or d.verdict == Verdict.DIVERGED:
            continue
        if d.verdict in OPEN or (row.name in about and not (d.holm is not None and d.holm < summary.alpha)):
            (hopeless if d.prospect is not None and d.prospect < HOPELESS else still).append(row.name)
    return still, hopeless


def next_course(course: Course, summary: Summary, before: Mapping[str, list[int]], pool: Sequence[int]) -> Course:
    """What the next look waits for: its seeds of `pool` for base and every open row that has finished runs."""
    if len(course.looks) == len(course.plan.sizes):
        return course
    last, base = course.looks[-1].seeds, next(row.name for row in summary.rows if row.base)
    still = {row for row in undecided_rows(summary)[0] if last[row]} if last[base] else set()
    if not still:
        return course
    size = course.plan.sizes[len(course.looks)]
    requested = {row: list(pool[:size]) if row in still or row == base else seeds for row, seeds in before.items()}
    return replace(course, asked=requested)


P_VALUES = ("p", "holm", "equivalent", "half")


def evidence_over_looks(looks: Sequence[Mapping[tuple[str, str], Evidence]]) -> dict[tuple[str, str], Evidence]:
    """The last look's evidence, with the smallest p of any look (each already divided by its share).

    A look whose estimate had the other sign counts for nothing: a verdict has to agree with the number beside it.
    """
    last = dict(looks[-1])
    for key, final in last.items():
        same = [e for look in looks if (e := look.get(key)) and (e.estimate > 0) == (final.estimate > 0)]
        ps = {name: [p for e in same if (p := getattr(e, name)) == p] for name in P_VALUES}
        last[key] = replace(final, **{name: min(values) for name, values in ps.items() if values})
    return last
