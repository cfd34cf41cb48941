"""The report's table alone: Markdown, CSV, JSON, LaTeX. Pure functions of the summary."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

from lightning_tfm.report import agreement_text
from lightning_tfm.report.render import millions
from lightning_tfm.report.table import COLUMNS

Plain = Mapping[str, Any]
HEADS = ["group", "row", "n", "PPL", "Δ PPL %", "p", "against the paper", "BLEU", "Δ BLEU", "p", "against the paper"]
HEADS += ["params", "FLOPs", "seconds", "paper PPL", "paper BLEU", "paper params"]


def to_json(report: Plain) -> str:
    """Everything the report says, as data."""
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def to_markdown(report: Plain) -> str:
    """The table, the claims and the agreement with the paper."""
    rows = [HEADS, ["---", "---", *["---:"] * (len(HEADS) - 2)], *(_markdown_row(r) for r in report["rows"])]
    body = "\n".join("| " + " | ".join(map(_plain, row)) + " |" for row in rows)
    notes = [
        f"± is the standard deviation over seeds; intervals are marginal 95 % ones; p is Holm-adjusted over rows and "
        f"both metrics; BLEU is {report['signature'] or 'not there yet'}"
    ]
    if report["looks"] is not None:
        notes.append(
            f"seeds were added where a verdict was open, {len(report['looks'])} of at most {report['most looks']} "
            f"looks so far; p is corrected for that too, intervals are at {report['interval level']:.2%}"
        )
    if report["scale"]:
        notes.append(f"a miniature of the paper: {report['scale']}")
    notes += agreement_text.notes(report["agreement"], report["last eighth"])
    notes += [f"“{claim['text']}” {claim['verdict']}" for claim in report["claims"]]
    notes += [f"{r['row']}, seed {seed}: {why}" for r in report["rows"] for seed, why in r["missing"].items()]
    return body + "\n\n" + "\n".join(f"- {_plain(note)}" for note in notes) + "\n"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _markdown_row(r: Plain) -> list[str]:
    paper = r["paper"]
    return [
        r["group"],
        r["row"],
        f"n={r['n']}",
        *_metric(r, "ppl", 2),
        *_metric(r, "bleu", 1),
        millions(r["parameters"]),
        "" if r["flops"] is None else f"{r['flops']:.2e}",
        "" if r["seconds"] is None else f"{r['seconds']:.0f}",
        "" if paper["ppl"] is None else f"{paper['ppl']:.2f}",
        "" if paper["bleu"] is None else f"{paper['bleu']:.1f}",
        "" if paper["params"] is None else f"{paper['params']}M",
    ]


def _metric(r: Plain, metric: str, digits: int) -> list[str]:
    found, d = r[metric], r[metric]["difference"]
    if found["mean"] is None:
        return ["–", "", "", ""]
    value = f"{found['mean']:.{digits}f}" + ("" if found["sd"] is None else f" ± {found['sd']:.{digits}f}")
    if d is None or d.get("estimate") is None:
        return [value, "", "", ""]
    shown = d["percent"] if metric == "ppl" else d
    interval = "" if shown["lower"] is None else f" [{shown['lower']:+.{digits}f}, {shown['upper']:+.{digits}f}]"
    verdict = d["verdict"] if r["n"] > 1 else ""
    return [value, f"{shown['estimate']:+.{digits}f}{interval}", "" if d["p"] is None else f"{d['p']:.2g}", verdict]


CSV_PARTS = ("estimate", "lower", "upper", "p", "smallest", "verdict")


def to_csv(report: Plain) -> str:
    """One line for each row, blanks filled in; differences in log PPL and BLEU."""
    head = ["group", "row", *COLUMNS, "parameters", "n", "flops", "seconds"]
    for metric in ("ppl", "bleu"):
        head += [f"{metric} mean", f"{metric} sd", *(f"{metric} difference {part}" for part in CSV_PARTS)]
    head += ["paper ppl", "paper bleu", "paper params (million)", "missing"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for r in report["rows"]:
        values = [r["group"], r["row"], *(r["values"][name] for name in COLUMNS)]
        values += [r["parameters"], r["n"], r["flops"], r["seconds"]]
        for metric in ("ppl", "bleu"):
            d = r[metric]["difference"] or {}
            values += [r[metric]["mean"], r[metric]["sd"], *(d.get(part) for part in CSV_PARTS)]
        paper = r["paper"]
        values += [paper["ppl"], paper["bleu"], paper["params"]]
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

    Bold: p below the level against base. Needs \\usepackage{booktabs,amsmath}.
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
    bold = d.get("p") is not None and d["p"] < alpha
    return (rf"\textbf{{{value}}}" if bold else value) + spread
