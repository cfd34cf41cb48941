"""Summary and cells -> the ablation's page (templates/report.html)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lightning_tfm.metrics import METRICS, PRINTED, Metric
from lightning_tfm.plural_words import plural
from lightning_tfm.report.analyses import head_ablation
from lightning_tfm.report.analyses.architecture import architectures
from lightning_tfm.report.analyses.catalog import findings, notes_of_analyses
from lightning_tfm.report.analyses.quality import strip
from lightning_tfm.report.blocks import Section
from lightning_tfm.report.charts import forest_picture
from lightning_tfm.report.charts.curves import curves
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.pages import provenance
from lightning_tfm.report.pages.document import render
from lightning_tfm.report.pages.provenance import Link, nowhere
from lightning_tfm.report.pages.sentences import attention, translations
from lightning_tfm.report.records import Cells
from lightning_tfm.report.summary import Summary, SummaryRow, nll_metrics
from lightning_tfm.report.tables import columns, main_table
from lightning_tfm.report.tables.paper_table import paper_latex
from lightning_tfm.report.wording.headline import base_apart, headline, trust
from lightning_tfm.report.wording.notes import (
    MEANINGS,
    elsewhere_notes,
    nll_notes,
    outdated_notes,
    reference_note,
    scale_notes,
    signature_notes,
)
from lightning_tfm.report.wording.outlier_seeds import FAR
from lightning_tfm.report.wording.verdict import BIAS, FALSE, SCOPE, factors_printed, verdict_counts
from lightning_tfm.report.wording.verdict_words import Verdict
from lightning_tfm.runs.divergence import BLOCKS, Undefined
from lightning_tfm.study.command import fit_command
from lightning_tfm.study.study_file import of_smoke_test
from lightning_tfm.study.user_classes import earlier_words

Part = tuple[str, str, bool]
"""key, title, and whether there is anything to show"""


def page(report: Summary, cells: Cells, texts: bool = True, live: str = "", link: Link = nowhere) -> str:
    """The HTML. `texts=False` leaves out every line of the corpus. `live` is the version that --serve asks for."""
    found = {word for r in report.rows for word in _words(r)}
    forest = forest_of(report)
    run_facts, runs = _runs(report, cells, texts, link)
    alike = replace(report, rows=[row for row in report.rows if row.name not in (report.foreign or [])])
    parts = [part for one, what in findings(report) for part in one.sections(what, report)]
    drawn, undrawn = architectures(cells.study)
    told = [note for note in nll_notes(report) if note not in MEANINGS]
    earlier = earlier_words(cells.study.classes)
    return render(
        "report.html",
        report=report,
        live=live,
        texts=texts,
        head=_head(report, cells),
        headline=headline(report, counts=not forest.tested),
        subtitle=forest.scope * forest.tested,
        tally=verdict_counts(report.rows, report.primary.name) if found - {Verdict.UNTESTABLE} else {},
        trust=trust(report),
        notices=[
            *["A smoke test: after ten steps scores and findings mean nothing"]
            * of_smoke_test(cells.root, cells.study.base),
            *[*base_apart(report), *reference_note(report), *outdated_notes(report)],
            *[*told, *[earlier] * bool(earlier)],
        ],
        architectures=drawn,
        undrawn=undrawn,
        each_head=head_ablation.each,
        nats=nll_metrics(report.rows),
        metric_names={name: metric.label for name, metric in METRICS.items()},
        words=[word for word in Verdict if word in found],
        false_share=FALSE,
        not_simulated=[METRICS[name].label for name in report.metrics if name not in PRINTED],
        table=(shown := main_table.page(report)),
        chooser=main_table.chooser(shown.columns),
        change=columns.change_text,
        latex=paper_latex(report),
        of_the_paper=columns.of_the_paper(report.rows),
        elsewhere=elsewhere_notes(report.rows),
        said=lambda r: "|".join(_words(r)),
        tested=bool(found - {Verdict.UNTESTABLE}),
        counted=verdict_counts,
        scope=SCOPE,
        bias=BIAS if factors_printed(report.rows) else "",
        beyond={name: _region(METRICS[name], tau) for name, tau in report.clear.items()},
        table_notes=notes_of_analyses(report, lambda analysis: analysis.notes_on_page),
        forest=forest_picture.both(forest),
        curves=curves(alike, cells, forest),
        shown={part.key: part.blocks for part in parts},
        among=lambda fixed: _among(parts, fixed),
        translations=translations(cells) if texts else [],
        attention=attention(cells) if texts else {},
        names={r.name: r.called for r in report.rows},
        alike=run_facts,
        runs=runs,
        strip=strip(report, forest.classes),
        far=FAR,
    )


def _among(parts: Sequence[Section], fixed: Sequence[Part]) -> list[Part]:
    """The page's own parts with those of the analyses, each behind the one that it names, one of another analysis too;
    last where that is not on the page."""

    def behind(key: str) -> list[Part]:
        return [part for own in parts if own.after == key for part in (_part(own), *behind(own.key))]

    placed = [*behind(""), *(one for part in fixed for one in (part, *behind(part[0])))]
    return placed + [part for part in map(_part, parts) if part not in placed]


def _part(section: Section) -> Part:
    return section.key, section.title, bool(section.blocks)


def _region(metric: Metric, tau: float) -> str:
    return f"{100 * tau:.1f} %" if metric.log else metric.size(tau)


def _head(report: Summary, cells: Cells) -> list[str]:
    parts = [
        f"{report.finished} of {report.cells} runs finished",
        f"seeds {', '.join(map(str, report.seeds))}",
        f"corpus {report.corpus}, {' to '.join(report.languages)}",
    ]
    if gone := sum(len(row.diverged or []) for row in report.rows if not row.same_as):
        parts.insert(1, f"{gone} diverged")
    parts += [f"{plural(len(report.hidden), 'row')} hidden, in every correction"] if report.hidden else []
    if unknown := sum(isinstance(cell.course, Undefined) for cell in cells.runs):
        parts.append(f"whether {unknown} of them diverged is undefined: fewer than {BLOCKS} losses were logged")
    if report.sentences:
        parts.append(f"{report.sentences:,} dev sentences")
    return parts + scale_notes(report) + signature_notes(report)


def _words(r: SummaryRow) -> list[str]:
    return [d.verdict for metric in METRICS if (d := r.metric(metric).difference)]


@dataclass(frozen=True)
class RowRuns:
    """The runs of one row as the page names them."""

    row: str
    called: str
    state: str
    missing: dict[str, str]
    """seed -> why its cell is empty"""
    runs: list[tuple[str, dict[str, str]]]
    """(link to its folder, empty where there is none; what is not the same of all runs of the page)"""
    command: str
    """that trains the first of them again"""
    examples: list[provenance.Example]
    """where its translations differ most from those of what it is compared with"""

    @property
    def heads(self) -> list[str]:
        return list(dict.fromkeys(key for _, facts in self.runs for key in facts))


def _runs(report: Summary, cells: Cells, texts: bool, link: Link) -> tuple[dict[str, str], list[RowRuns]]:
    """What all runs have alike, and where every cell comes from."""
    against = report.against.name if report.against else ""
    rows = {row.name: row for row in cells.study.rows}
    examples = provenance.examples(cells, against, report.to) if texts else {}
    facts = {key: provenance.run_facts(cell) for key, cell in cells.filled.items()}
    alike = provenance.shared(list(facts.values()))
    found = []
    for r in report.rows:
        own = cells.of(r.name)
        runs = [
            (link(c.folder), {k: v for k, v in facts[c.row, c.seed].items() if k not in alike or k in ("run", "seed")})
            for c in own
        ]
        command = fit_command(cells.study.written(rows[r.name], own[0].seed)) if own else ""
        found.append(RowRuns(r.name, r.called, _state(r), r.missing, runs, command, examples.get(r.name, [])))
    return {key: value for key, value in alike.items() if key != "seed"}, found


def _state(r: SummaryRow) -> str:
    empty = len(r.missing)
    said = f", {plural(empty, 'cell')} empty or refused" if empty else ""
    return plural(r.n, "run") + said
