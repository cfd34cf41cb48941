"""The report's table alone: Markdown, CSV, JSON, LaTeX. Pure functions of the summary."""

import csv
import io
import json
import textwrap
from collections.abc import Mapping
from typing import Any

from lightning_tfm.report import agreement_text
from lightning_tfm.report.plateau import FAR, said
from lightning_tfm.report.render import millions
from lightning_tfm.report.table import COLUMNS
from lightning_tfm.report.verdict import counted, phrase

Plain = Mapping[str, Any]
TESTED = ["p (BH)", "p (Holm)", "against the paper"]
HEADS = ["group", "row", "n", "PPL", "Δ PPL %", *TESTED, "BLEU", "Δ BLEU", *TESTED]
HEADS += ["params", "FLOPs", "seconds", "paper PPL", "paper BLEU", "paper params"]


def to_json(report: Plain) -> str:
    """Everything the report says, as data."""
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def to_markdown(report: Plain) -> str:
    """The table, the words counted, the claims and the agreement with the paper."""
    rule = ["---", "---", *["---:"] * (len(HEADS) - 2)]
    rows = [HEADS, rule, *(_markdown_row(r, report["alpha"]) for r in report["rows"])]
    body = "\n".join("| " + " | ".join(map(_plain, row)) + " |" for row in rows)
    notes = [
        f"± is the standard deviation over seeds; intervals are marginal 95 % ones; words go by p (BH), corrected over "
        f"the rows of the metric by Benjamini and Hochberg, bold: by Holm too; BLEU is "
        f"{report['signature'] or 'not there yet'}",
        *word_counts(report),
    ]
    if report["looks"] is not None:
        notes.append(
            f"seeds were added where a verdict was open, {len(report['looks'])} of at most {report['most looks']} "
            f"looks so far; p is corrected for that too, intervals are at {report['interval level']:.2%}"
        )
    if report["scale"]:
        notes.append(f"a miniature of the paper: {report['scale']}")
    notes += agreement_text.notes(report["agreement"], report["last eighth"])
    notes += [claim_line(claim) for claim in report["claims"]]
    notes += [
        f"{r['row']}: {said(r)} (seed {', '.join(map(str, r['plateaued']))}: more than {FAR:g} median absolute "
        "deviations above the row's median; they stay in every number)"
        for r in report["rows"]
        if r["plateaued"]
    ]
    if two_seeds(report):
        notes.append(TWO_SEEDS)
    notes += [f"{r['row']}, seed {seed}: {why}" for r in report["rows"] for seed, why in r["missing"].items()]
    return body + "\n\n" + "\n".join(f"- {_plain(note)}" for note in notes) + "\n"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _markdown_row(r: Plain, alpha: float) -> list[str]:
    paper = r["paper"]
    return [
        r["group"],
        r["row"],
        f"n={r['n']}",
        *_metric(r, "ppl", 2, alpha),
        *_metric(r, "bleu", 1, alpha),
        millions(r["parameters"]),
        "" if r["flops"] is None else f"{r['flops']:.2e}",
        "" if r["seconds"] is None else f"{r['seconds']:.0f}",
        "" if paper["ppl"] is None else f"{paper['ppl']:.2f}",
        "" if paper["bleu"] is None else f"{paper['bleu']:.1f}",
        "" if paper["params"] is None else f"{paper['params']}M",
    ]


TWO_SEEDS = "with two seeds even a difference of 4 standard deviations is seldom found"


def two_seeds(report: Plain) -> bool:
    """Whether any row is tested with two seeds of it or of base."""
    counts = [r["n"] for r in report["rows"]]
    base = next((r["n"] for r in report["rows"] if r["base"]), 0)
    return base > 1 and 2 in (base, *counts)


def to_words(report: Plain, width: int) -> str:
    """For the terminal: the words in perplexity and BLEU, the claims, and seeds that plateaued."""
    lines = [*word_counts(report), *(claim_line(claim) for claim in report["claims"])]
    lines += [f"{r['row']}: {said(r)}" for r in report["rows"] if r["plateaued"]]
    return "".join(f"{textwrap.fill(line, width)}\n" for line in lines)


def word_counts(report: Plain) -> list[str]:
    """How often each word was said, of each metric."""
    lines = []
    for metric in ("ppl", "bleu"):
        found = counted(report["rows"], metric)
        parts = [f"{n} {word}" for word, n in found.items()]
        lines.append(f"{metric.upper()}, {sum(found.values())} rows: {'; '.join(parts) or 'none'}")
    return lines


def claim_line(claim: Plain) -> str:
    """“Text” word (p)."""
    return f"“{claim['text']}” {claim['verdict']}" + ("" if claim["p"] is None else f" (p {claim['p']:.2g})")


def _metric(r: Plain, metric: str, digits: int, alpha: float) -> list[str]:
    found, d = r[metric], r[metric]["difference"]
    if found["mean"] is None:
        return ["–", "", "", "", ""]
    value = f"{found['mean']:.{digits}f}" + ("" if found["sd"] is None else f" ± {found['sd']:.{digits}f}")
    if d is None or d.get("estimate") is None:
        return [value, "", "", "", ""]
    shown = d["percent"] if metric == "ppl" else d
    interval = "" if shown["lower"] is None else f" [{shown['lower']:+.{digits}f}, {shown['upper']:+.{digits}f}]"
    word = phrase(d) if r["n"] > 1 else ""
    if d["holm"] is not None and d["holm"] < alpha:
        word = word.replace(d["verdict"], f"**{d['verdict']}**")
    ps = ["" if d[p] is None else f"{d[p]:.2g}" for p in ("p", "holm")]
    return [value, f"{shown['estimate']:+.{digits}f}{interval}", *ps, word]


CSV_PARTS = ("estimate", "lower", "upper", "p", "holm", "smallest", "needed", "verdict", "factor")


def to_csv(report: Plain) -> str:
    """One line for each row, blanks filled in; differences in log PPL and BLEU; `factor` is d / P."""
    head = ["group", "row", *COLUMNS, "parameters", "n", "flops", "seconds"]
    for metric in ("ppl", "bleu"):
        head += [f"{metric} mean", f"{metric} sd", *(f"{metric} difference {part}" for part in CSV_PARTS)]
    head += ["paper ppl", "paper bleu", "paper params (million)", "plateaued", "missing"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for r in report["rows"]:
        values = [r["group"], r["row"], *(r["values"][name] for name in COLUMNS)]
        values += [r["parameters"], r["n"], r["flops"], r["seconds"]]
        for metric in ("ppl", "bleu"):
            d = r[metric]["difference"] or {}
            parts = {k: d.get(k) for k in CSV_PARTS} | {"factor": (d.get("factor") or {}).get("estimate")}
            values += [r[metric]["mean"], r[metric]["sd"], *parts.values()]
        paper = r["paper"]
        values += [paper["ppl"], paper["bleu"], paper["params"]]
        values.append(" ".join(map(str, r["plateaued"])))
        writer.writerow([*values, "; ".join(f"seed {s}: {why}" for s, why in r["missing"].items())])
    return out.getvalue()


LATEX_HEADS = {
    "N": "$N$",
    "d_model": r"$d_{\text{model}}$",
    "d_ff": r"$d_{\text{ff}}$",
    "h": "$h$",
    "d_k": "$d_k$",
    "d_v": "$d_v$",
    "P_drop": "$P_{drop}$",
    "eps_ls": r"$\epsilon_{ls}$",
    "positions": "positions",
    "train steps": "steps",
}
ESCAPES = {c: rf"\{c}" for c in "&%$#_{}"}
ESCAPES |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}


def latex(text: Any) -> str:
    """Harmless in LaTeX: special characters escaped, control and direction marks left out."""
    return "".join(ESCAPES.get(c, c) for c in " ".join(str(text).split()) if c.isprintable())


def to_latex(report: Plain) -> str:
    """The paper's own layout with booktabs: blanks where a row equals base, a rule between groups.

    Bold: Holm's p over the rows of the metric below the level. Needs \\usepackage{booktabs,amsmath}.
    """
    columns = "ll" + "c" * len(COLUMNS) + "rrrr"
    heads = [*LATEX_HEADS.values(), "PPL (dev)", "BLEU (dev)", "params", "$n$"]
    lines = [r"\begin{tabular}{" + columns + "}", r"\toprule", " & & " + " & ".join(heads) + r" \\"]
    group = None
    for r in report["rows"]:
        if r["group"] != group:
            lines.append(r"\midrule")
        label = "" if r["group"] == group or r["group"] in ("base", "big") else f"({latex(r['group'])})"
        group = r["group"]
        values = [latex(r["values"][name]) if name not in r["blank"] else "" for name in COLUMNS]
        scores = [_latex_score(r, "ppl", 2, report["alpha"]), _latex_score(r, "bleu", 1, report["alpha"])]
        rest = [label, latex(r["row"]), *values, *scores, latex(millions(r["parameters"])), str(r["n"])]
        lines.append(" & ".join(rest) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _latex_score(r: Plain, metric: str, digits: int, alpha: float) -> str:
    found, d = r[metric], r[metric]["difference"] or {}
    if found["mean"] is None:
        return "--"
    value = f"{found['mean']:.{digits}f}"
    spread = "" if found["sd"] is None else rf" $\pm$ {found['sd']:.{digits}f}"
    bold = d.get("holm") is not None and d["holm"] < alpha
    return (rf"\textbf{{{value}}}" if bold else value) + spread
