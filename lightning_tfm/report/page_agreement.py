"""The page's section on agreement with the paper over all rows: figures, their course in training, base's fall."""

from lightning_tfm.report import figures
from lightning_tfm.report.agreement_text import LABELS, METRICS, at, clear, last_eighth, parts, shown
from lightning_tfm.report.document import Plain, figure, scrolling, text


def agreement(report: Plain) -> str:
    """Empty where nothing is known, as in a study of other rows than the paper's."""
    found, fall = report["agreement"], report["last eighth"]
    body = ""
    if fall is not None:
        warning = '<strong class="bad">Warning:</strong> ' if fall["still falling"] else ""
        body += f"<p>{warning}{_unbroken(last_eighth(fall))}.</p>"
    if found is None:
        return body
    body += _figures(found)
    course = found["curve"]
    if course:
        caption = (
            f"Log PPL, {course['rows']} rows, each at the same share of its own training. Band: 95 % from training "
            "noise with these rows fixed, where rows have several seeds. Dashed: the parameter count alone. "
            "Shaded: the last eighth, over which base's dev perplexity moved as written above it."
        )
        body += figure(figures.agreement(course, fall), caption) + _points(course)
    return body


def _figures(found: Plain) -> str:
    columns = [
        (which, name, metrics[m]) for which, metrics in parts(found) for m, name in METRICS.items() if metrics[m]
    ]
    head = "".join(f'<th scope="col">{name},<br>{which},<br>{one["rows"]} rows</th>' for which, name, one in columns)
    values = [shown(one) for _, _, one in columns]
    rows = "".join(
        f'<tr><th scope="row" class="w wrap">{said}</th>{"".join(f"<td>{value[key]}</td>" for value in values)}</tr>'
        for key, said in LABELS.items()
    )
    table = f'<table><thead><tr><th scope="col" class="w">figure</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return scrolling("Table of the agreement with the paper", table) + _method(found)


def _method(found: Plain) -> str:
    said = [
        f"{clear(found)} (two standard deviations of a difference of two).",
        "The first interval is what training noise alone does to these rows (each drawn anew with its standard error "
        "over seeds); noise lowers a rank correlation, so it leans to the low side. The second takes the rows for a "
        "sample of possible rows.",
        "The ceiling is the rank correlation of two such noisy studies if the paper's differences were the truth.",
        "Rows of base's size: parameters within 1 % of base's, tables of positions left out.",
    ]
    against = ", ".join(text(name) for name in found["ppl"]["against the paper"])
    if against:
        said.append(f"Clear rows of perplexity that are not on the paper's side: {against}.")
    if found["calibrated on"]:
        rows = ", ".join(text(name) for name in found["calibrated on"])
        said.append(
            f"The shipped miniature's regime was chosen on base and {rows}; “rows not calibrated on” are all others."
        )
    return "<ul>" + "".join(f"<li>{_unbroken(line)}</li>" for line in said) + "</ul>"


def _unbroken(line: str) -> str:
    return line.replace(" %", "&nbsp;%")


def _points(course: Plain) -> str:
    rows = "".join(
        f'<tr><td>{p["step"]:,}</td><td>{p["base ppl"]:.2f}</td><td class="w">{at(p)}</td></tr>'
        for p in course["points"]
    )
    head = '<th scope="col">step of base</th><th scope="col">base\'s PPL</th>'
    head += '<th scope="col" class="w">share of the training, rank correlation, 95 % from training noise</th>'
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<details><summary>The same as a table</summary>{table}</details>"
