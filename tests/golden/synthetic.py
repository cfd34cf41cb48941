"""Views of studies that nobody trained: what the report says of every kind of row, cell and analysis.

They stand here for wording and formats; tests/report asserts numbers. Sentences of the corpus are left out.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from lightning_tfm.atomic_io import to_json
from lightning_tfm.config import Experiment, Miniature, evaluation_hash
from lightning_tfm.data.sources.length_buckets import LongText
from lightning_tfm.report import search_report
from lightning_tfm.report.across.comparison import compare
from lightning_tfm.report.across.meta_analysis import meta_analysis
from lightning_tfm.report.across.scaling import scaling_study
from lightning_tfm.report.build_summary import summarise_untested, tabulate
from lightning_tfm.report.records import read_cells
from lightning_tfm.report.render.every_format import render
from lightning_tfm.report.study_report import make, render_table
from lightning_tfm.report.wording.notes import to_words
from lightning_tfm.runs.evaluation import by_length
from lightning_tfm.runs.record import Score, to_plain
from lightning_tfm.study.rows import all_rows, apply
from lightning_tfm.study.sequential import Course, Look, late, looks_to_json
from lightning_tfm.study.study_file import save
from lightning_tfm.training.evaluate import Line
from tests.golden import visible
from tests.helpers.studies import (
    BASE,
    SIGNATURE,
    TWICE_THE_STEPS,
    Generator,
    ablation,
    cells_of,
    own_row,
    record_of,
    write_json,
    write_lines,
    write_search,
)

FIVE = [1, 2, 3, 4, 5]
HOSTILE = "<script>alert('1')</script>\"'&\u202e|$%"


def diverging(end: float) -> list[dict[str, float]]:
    """The lines of a run whose loss goes from 3 to `end` half-way."""
    return [{"step": 5 * i, "nll": 3.0 if i < 20 else end, "lr": 0.1, "grad_norm": 7.0} for i in range(1, 41)]


def write_looks(made: Generator, course: Course) -> None:
    (made.root / "studies" / made.study.name / "looks.json").write_bytes(to_json(looks_to_json(course)))


OWN = [
    own_row("pre", {"model.norm": "pre"}),
    own_row("pre-short", {"model.norm": "pre", "training.warmup": 200}),
    own_row("slow", {"training.lr_factor": 0.5, "training.warmup": 200}),
    own_row("long", {"training.steps": 200_000}),
]


def own(root: Path) -> Generator:
    """Rows of the user's own, one of them base and one another row; what others publish; a name for every escape."""
    elsewhere = replace(
        OWN[2], label="slow, then <fast>", elsewhere="25.9 BLEU, <base> 25.8 (Shaw et al. 2018, table 2)"
    )
    twins = [own_row("also-base", {"model.h": 8}), own_row("also-pre", {"model.norm": "pre"})]
    made = Generator(
        root, ["base", *OWN[:2], elsewhere, OWN[3], *twins, own_row("_&%$#{~^\\é中", {"model.h": 2})], FIVE
    )
    made.write_all({"pre": 0.2, "slow": -0.2}, skip=[(row.name, seed) for row in twins for seed in FIVE])
    return made


def paper(root: Path) -> Generator:
    """Rows of the paper: a seed far above, a diverged row, cells missing, damaged, scored otherwise."""
    names = ["base", "A-h1", "A-h4", "C-N2", "D-Pdrop0.0", "E-learned", "big", OWN[1]]
    made = Generator(root, names, FIVE)
    made.write_all({"A-h1": 0.2, "C-N2": 0.3, "E-learned": -0.2}, skip=[("big", 1), ("big", 2), ("big", 3), ("big", 4)])
    _, h1, h4, _, drop, learned, *_ = made.study.rows
    made.write(h1, 3, 0.9)
    made.folder(h4, 2).result.write_text("{")
    made.folder(h4, 3).result.unlink()
    made.write(learned, 2, 0.0, signature="nrefs:1|case:lc")
    for seed in (1, 2):
        write_lines(made.write(drop, seed, 100.0).metrics, diverging(4.9))
    return made


def one_seed(root: Path) -> Generator:
    made = Generator(root, ["base", "A-h1", "A-h4"], [7])
    made.write_all({"A-h1": 0.3})
    return made


def looks(root: Path) -> Generator:
    """Of a study with interim analyses, after the first of them."""
    made = Generator(root, ["base", "A-h1", "A-h4"], [1, 2, 3, 4, 5, 6])
    made.write_all({"A-h1": 0.2})
    seen = {row.name: FIVE for row in made.study.rows}
    write_looks(made, Course(late(5, 8), [Look(seen)], seen | {"base": [*FIVE, 6], "A-h4": [*FIVE, 6]}))
    return made


PIECES = [
    own_row("small", {"data.vocab_size": 200}, "V", 1),
    own_row("less", {"data.share": 0.8}, "S", 2),
    own_row("whole", {"data.share": 1.0}, "S", 3),
    own_row("wide", {"model.d_ff": 4096}, "M", 4),
]


def pieces(root: Path, seeds: list[int] = FIVE) -> Generator:
    """Rows with another vocabulary, which no perplexity compares."""
    made = Generator(root, ["base", *PIECES], seeds, by_word=True)
    made.write_all({"small": 0.2, "wide": -0.2}, skip=[("whole", seed) for seed in seeds])
    return made


def combination(norm: str, warmup: int):
    return own_row(f"norm={norm}, warmup={warmup}", {"model.norm": norm, "training.warmup": warmup}, "grid")


GRID = ["base", *(combination(norm, warmup) for norm in ("pre", "post") for warmup in (400, 800))]
"""base is post and 400"""


def grid(root: Path, seeds: list[int] = FIVE) -> Generator:
    """All combinations of two fields, which interact."""
    made = Generator(root, GRID, seeds)
    made.write_all({"norm=pre, warmup=400": 0.3, "norm=pre, warmup=800": 0.9})
    return made


TUNING = {
    "key": "training.lr_factor",
    "values": [0.5, 1.0, 2.0],
    "seeds": [1001],
    "study": "made-tuning",
    "cost": {"runs": 9, "seconds": 1234.5, "flops": 3.5e12},
    "rows": [
        {"row": "base", "value": 1.0, "ppl": {"0.5": 5.5, "1.0": 5.0, "2.0": 6.0}},
        {"row": "A-h1", "value": 0.5, "ppl": {"0.5": 5.125, "1.0": 5.25, "2.0": 6.5}},
        {"row": "C-N2", "value": 1.0, "ppl": {"0.5": 7.5, "1.0": 7.0, "2.0": 8.0}},
    ],
}


def tuned(root: Path, seeds: list[int] = FIVE) -> Generator:
    """Each row at the best of three learning rates; E-learned joined later."""
    made = Generator(root, ["base", "A-h1", "C-N2", "E-learned"], seeds)
    made.write_all()
    write_json(root / "studies/made/tuning.json", TUNING)
    return made


LIMIT, SIX = 10, [1, 2, 3, 4, 5, 6]
RISES = {"base": 0.5, "E-learned": 0.9, "alibi": 0.02, "seen": 0.0}


class Long(Generator):
    """A study of which dev is scored by length: nll per piece beyond rises by `rises` of its row, 0.3 for all."""

    def __init__(self, root: Path):
        data = replace(BASE.data, long="val", long_from=LIMIT, max_len=40)
        alibi, seen = own_row("alibi", {"model.positions": "alibi"}), own_row("seen", {"data.max_len": 512})
        super().__init__(root, ["base", "E-learned", alibi, seen], SIX, base=replace(BASE, data=data))
        self.text = LongText(self.prepared, data)

    def write_long(self, rises, sd=0.01, skip=()) -> None:
        split = self.text.split("val")
        source, target = split.source_lengths + 1, split.target_lengths + 1
        far, hard = np.maximum(source, target) > LIMIT, self.rng.normal(0, 0.1, len(split))
        for row in self.study.rows:
            for seed in SIX:
                folder, rise = self.folder(row, seed), rises[row.name] + 0.3 + self.rng.normal(0, sd)
                if (row.name, seed) in skip:
                    continue
                lines = [
                    Line(float(t * (1.0 + h + rise * f)), int(t), [5] * (int(t) - 1 if not f else int(t) // 3), 0.0)
                    for t, h, f in zip(target, hard, far, strict=True)
                ]
                texts = ["a b c d e"] * len(lines)
                classes = by_length(lines, texts, texts, (source, target), LIMIT, "13a")
                name = evaluation_hash(self.study.base, self.text.fingerprint("val"))
                nll, tokens = math.fsum(x.nll for x in lines), sum(x.tokens for x in lines)
                score = Score(
                    split="val", weights="last", ppl=math.exp(nll / tokens), nll=nll, tokens=tokens, bleu=100.0,
                    signature=SIGNATURE, evaluation_hash=name, by_length=classes,
                )  # fmt: skip
                scores = folder.scores(name)
                write_json(scores / "val.json", to_plain(score))
                each = [f"{x.nll!r}\t{x.tokens}\t{s}\n" for x, s in zip(lines, source, strict=True)]
                (scores / "val.sentences.tsv").write_text("nll\ttokens\tsource\n" + "".join(each))
                whole = json.loads(folder.result.read_bytes())
                whole["scores"]["long"] = to_plain(score)
                write_json(folder.result, whole)


def beyond(root: Path) -> Long:
    """Scores beyond the training length, with a control and a run that was not scored."""
    made = Long(root)
    made.write_all()
    made.write_long(RISES, skip=[("alibi", 4)])
    return made


def fast(root: Path) -> Generator:
    """Curves as they end in the scores: of A-h1 twice as fast as base, of `big` by another schedule."""
    made, slope = Generator(root, ["base", "A-h1", "C-N4", "big"], FIVE), 0.2 / math.log(2)
    for row in made.study.rows:
        for seed in made.study.seeds:
            folder = made.write(row, seed, {"A-h1": -0.2, "C-N4": 0.1, "big": -0.1}.get(row.name, 0.0))
            scored = json.loads(folder.result.read_bytes())["scores"]["dev"]["ppl"]
            end = {"big": 300}.get(row.name, 100)
            course = [{"step": s, "dev_ppl": scored * (end / s) ** slope} for s in (end // 4, end // 2, end)]
            write_lines(folder.metrics, course)
    return made


STUDIES = {made.__name__: made for made in (own, paper, one_seed, looks, pieces, grid, tuned, beyond, fast)}
REFERENCES = {"own": "pre", "pieces": "small", "paper": "C-N2"}


def study_views(name: str, root: Path) -> Iterator[tuple[str, str]]:
    """(file, content) of a made study."""
    made = STUDIES[name](root)
    table, report = summarise_untested(read_cells(made.study, root)), make("made", root)
    yield "table.txt", render_table(table, "text", 80)
    yield "table.md", render_table(table, "markdown")
    yield "report.txt", f"{render_table(report.summary, 'text', 80)}\n{to_words(report.summary, 80)}"
    for kind, end in {"markdown": "md", "csv": "csv", "json": "json", "latex": "tex"}.items():
        yield f"report.{end}", report.render(kind)
    yield "page.txt", visible(report.render("html", texts=False))
    if name in REFERENCES:
        against = make("made", root, REFERENCES[name])
        yield "reference.txt", render_table(against.summary, "text", 80)
        for kind, end in {"markdown": "md", "csv": "csv", "json": "json"}.items():
            yield f"reference.{end}", against.render(kind)
        yield "reference.page.txt", visible(against.render("html", texts=False))


def search_views(root: Path) -> Iterator[tuple[str, str]]:
    write_search(root, 40, HOSTILE)
    report = search_report.make("found", root)
    for kind, end in {"markdown": "md", "csv": "csv", "json": "json"}.items():
        yield f"search.{end}", report.render(kind)
    yield "search.page.txt", visible(report.render("html"))


def table3(seeds=(1,), miniature: bool = True, labels: bool = True):
    """All rows of the paper, by records that lie nowhere: PPL 1.5 + k / 10 of the k-th row, a hundredth per seed."""
    base = Experiment(miniature=Miniature(8, 2, 100) if miniature else Miniature())
    rows = [row if labels else replace(row, label="") for row in all_rows().values()]
    study = ablation(rows, seeds, name="table3", base=base, V=500)
    return study, {
        (row.name, s): record_of(apply(base, row, s), V=500, ppl=1.5 + i / 10 + s / 100, bleu=40 + i + s / 10)
        for i, row in enumerate(rows)
        for s in seeds
    }


def table3_views(root: Path) -> Iterator[tuple[str, str]]:
    """Table 3 at widths where its columns fit and where changes are spelled out."""
    kinds = {"one": ((1,), True), "three": ((1, 2, 3), True), "full-size": ((1,), False), "full-two": ((1, 2), False)}
    for name, how in kinds.items():
        for width in (80, 84, 120):
            yield f"{name}-{width}.txt", render_table(tabulate(cells_of(*table3(*how))), "text", width)
    yield "unlabelled.txt", render_table(tabulate(cells_of(*table3(labels=False))), "text", 80)
    for kind, end in {"markdown": "md", "csv": "csv"}.items():
        yield f"one.{end}", render_table(tabulate(cells_of(*table3())), kind)


ACROSS = ["base", "A-h1", "A-h4", "A-h16", "A-h32", "C-N2", "C-N4", "D-Pdrop0.0", "E-learned"]


def across_views(root: Path) -> Iterator[tuple[str, str]]:
    """Two studies compared, five of one text over scales, four pooled."""
    one = Generator(root, ACROSS[:4], FIVE, "one")
    one.write_all({"A-h4": 0.5})
    other = Generator(root, ["base", "A-h1", "A-h4", "C-N2"], FIVE, "other", base=TWICE_THE_STEPS)
    other.write_all({"A-h1": 0.3})
    for made, title in ((one, "Heads"), (other, "Depth & width")):
        save(replace(made.study, title=title, question=f"{title}?"), root)
    analyses = {"compare": compare([make("one", root), make("other", root)])}
    for name, width, effects in (
        ("small", 16, {"C-N2": 0.4, "D-Pdrop0.0": -0.2}),
        ("large", 8, {"C-N2": 0.2, "D-Pdrop0.0": 0.2}),
    ):
        base = replace(BASE, miniature=replace(BASE.miniature, width=width))
        Generator(root, ACROSS, [11, 12, 13, 14, 15], name, base=base).write_all(effects | {"A-h1": 0.3}, seed_sd=0.01)
    analyses["scaling"] = scaling_study([make("small", root), make("large", root)], 65e6)
    studies = [make(name, root) for name in ("one", "other", "small", "large")]
    analyses["pool"] = meta_analysis(studies, {"one": "a", "other": "a", "small": "b", "large": "b"})
    for name, found in analyses.items():
        for kind, end in {"text": "txt", "markdown": "md", "csv": "csv", "json": "json", "latex": "tex"}.items():
            yield f"{name}.{end}", render(found, kind)
        yield f"{name}.page.txt", visible(render(found, "html"))


VIEWS: dict[str, Callable[[Path], Iterator[tuple[str, str]]]] = {
    **{name: partial(study_views, name) for name in STUDIES},
    "table3": table3_views,
    "search": search_views,
    "across": across_views,
}
