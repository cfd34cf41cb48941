"""The agreement with the paper in words: a line for the terminal, notes for Markdown, one label for each figure."""

from collections.abc import Mapping
from typing import Any

Plain = Mapping[str, Any]

NOTHING = "–"
METRICS = {"ppl": "log PPL", "bleu": "BLEU"}
LABELS = {
    "sides": "Clear rows on the paper's side",
    "rule": "The same, if every change were worse",
    "spearman": "Rank correlation (Spearman)",
    "noise interval": "95 % from training noise, these rows fixed",
    "interval over rows": "95 % with the rows as a sample of rows",
    "parameter count alone": "Parameter count alone, nothing trained",
    "given parameter count": "Partial, given the parameter count",
    "size of base": "Within the rows of base's size",
    "ceiling": "Ceiling, given the paper's noise and ours",
}
"""figure -> what it is"""
SPEED = "this table shows the speed of learning"


def shown(found: Plain | None) -> dict[str, str]:
    """Figure -> its value in print, for one metric; a dash for what is unknown."""
    if found is None:
        return {key: NOTHING for key in LABELS}
    clear, same = found["clear rows"], found["size of base"]
    values = {
        "sides": f"{found['with the paper']} of {clear}",
        "rule": f"{found['if every change is worse']} of {clear}",
        "size of base": f"{_number(same['spearman'])} ({same['rows']} rows)",
    }
    for key in ("spearman", "parameter count alone", "given parameter count", "ceiling"):
        values[key] = _number(found[key])
    for key in ("noise interval", "interval over rows"):
        values[key] = NOTHING if found[key] is None else "[{}, {}]".format(*map(_number, found[key]))
    return {key: values[key] for key in LABELS}


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"


def parts(agreement: Plain) -> list[tuple[str, Plain]]:
    """(which rows, figures of each metric): all rows and, of a miniature, those its regime was not chosen on."""
    found = [("all rows", agreement)]
    if agreement["not calibrated on"]:
        found.append(("rows not calibrated on", agreement["not calibrated on"]))
    return found


def line(agreement: Plain | None, fall: Plain | None) -> str:
    """For the end of a table in a terminal, no break before %; empty where nothing is known."""
    said = []
    if agreement is not None:
        ppl = agreement["ppl"]
        values = shown(ppl)
        said.append(f"{values['sides']} clear rows on the paper's side")
        if ppl["spearman"] is not None:
            alone = f" (parameter count alone {values['parameter count alone']})"
            said.append(f"rank correlation {values['spearman']}" + alone * (ppl["parameter count alone"] is not None))
    if fall is not None:
        unbroken = fell(fall).replace(" %", "\N{NO-BREAK SPACE}%")
        said.append(f"base {unbroken} in the last eighth" + f": {SPEED}" * fall["still falling"])
    return "; ".join(said)


def fell(fall: Plain) -> str:
    """How base's perplexity moved."""
    percent = 100 * fall["fall"]
    return f"rose {-percent:.1f} %" if percent <= -0.05 else f"still fell {max(percent, 0):.1f} %"


def notes(agreement: Plain | None, fall: Plain | None) -> list[str]:
    """Every figure, a sentence for each metric and set of rows; the course of training; base's fall."""
    found = []
    for which, metrics in parts(agreement) if agreement else []:
        for metric, name in METRICS.items():
            if metrics[metric] is not None:
                found.append(_sentence(which, name, metrics[metric]))
    if agreement:
        found.append(clear(agreement))
    if agreement and agreement["calibrated on"]:
        found.append(f"The shipped miniature's regime was chosen on base and {', '.join(agreement['calibrated on'])}")
    course = agreement["curve"] if agreement else None
    if course:
        found.append(
            f"Rank correlation in log PPL in the course of training, {course['rows']} rows, each at the same share of "
            f"its own training: {', '.join(map(at, course['points']))}"
        )
    if fall is not None:
        found.append(last_eighth(fall))
    return found


def _sentence(which: str, name: str, found: Plain) -> str:
    values = "; ".join(f"{LABELS[key][0].lower()}{LABELS[key][1:]} {value}" for key, value in shown(found).items())
    return f"Agreement with the paper in {name}, {which} ({found['rows']}): {values}"


def clear(found: Plain) -> str:
    """From where a row is clear."""
    ppl, bleu = found["ppl"], found["bleu"]
    limits = f"{100 * ppl['clear beyond']:.1f} % of perplexity" + (f", {bleu['clear beyond']:.2f} BLEU" if bleu else "")
    return f"A row is clear where the paper's own difference to base is beyond the noise of single runs: {limits}"


def at(point: Plain) -> str:
    """One validation."""
    interval = point["noise interval"]
    beside = "" if interval is None else " [{}, {}]".format(*map(_number, interval))
    return f"{100 * point['share']:.3g} % {_number(point['spearman'])}{beside}"


def last_eighth(fall: Plain) -> str:
    """A sentence, which is a warning where base had not done learning."""
    said = f"Base's dev perplexity {fell(fall)} over the last eighth of its training"
    limit = f"{100 * fall['threshold']:.0f} %"
    return said + (f", more than {limit}: {SPEED}, not what rows are worth at convergence" * fall["still falling"])
