"""Summary and cells -> the ablation's page."""

from lightning_tfm.report import page_agreement, page_pictures, page_runs, page_table
from lightning_tfm.report.cells import Cells
from lightning_tfm.report.document import Plain, document, text

PAPER_BLEU = (
    "The paper's BLEU is on other text (newstest2013) and, by its first code, on Moses tokens with split hyphens; "
    "read its 25.8 as about 25.5 of sacreBLEU's 13a. Compare directions, not levels."
)


def page(report: Plain, cells: Cells, texts: bool = True, live: str = "") -> str:
    """The HTML. `texts=False` leaves out every line of the corpus. `live` is the version that --serve asks for."""
    parts = {
        "table": ("Table", page_table.table(report)),
        "verdicts": ("Against the paper", page_table.verdicts(report)),
        "agreement": ("Agreement over all rows", page_agreement.agreement(report)),
        "forest": ("Differences to base", page_pictures.forests(report)),
        "curves": ("Learning curves", page_pictures.curves(report, cells)),
        "quality": ("Quality against size", page_pictures.quality(report)),
        "lengths": ("BLEU by length", page_pictures.lengths(report, cells)),
        "calibration": ("Calibration", page_pictures.calibration(report, cells)),
        "attention": ("Attention", page_pictures.attention(cells) if texts else ""),
        "runs": ("Runs", page_runs.runs(report, cells, texts)),
        "method": ("How to read this", _method(report, texts)),
    }
    return document(report["study"], "ablation", _head(report), parts, live)


def _head(report: Plain) -> str:
    parts = [
        f"{report['finished']} of {report['cells']} runs finished",
        f"seeds {', '.join(map(str, report['seeds']))}",
    ]
    parts.append(f"corpus {report['corpus']}, {' to '.join(report['languages'])}")
    if report["sentences"]:
        parts.append(f"{report['sentences']:,} dev sentences")
    if report["scale"]:
        parts.append(f"a miniature of the paper: {report['scale']}")
    if report["signature"]:
        parts.append(f"BLEU is {report['signature']}")
    return "; ".join(map(text, parts)) + "."


def _method(report: Plain, texts: bool) -> str:
    margin = report["margin"]
    lines = [
        "PPL is dev perplexity per piece, end token included. Differences in perplexity are tested as differences of "
        "its logarithm and shown in percent.",
        "A difference has two kinds of noise: training (seeds; the variance of a row is moderated by the study's, "
        "Smyth 2004) and test set (sentences; paired bootstrap on the same resamples for all runs, Koehn 2004).",
        f"p-values are corrected over all rows and both metrics (Holm 1979) at {report['alpha']:g}. The printed "
        "interval is the marginal 95 % one: it decides nothing but equivalence.",
        "reproduced: the paper's sign, and p below the level; contradicted: the other sign; no difference found: with "
        f"the true difference that would have been found with {report['power']:.0%} probability; equivalent: the "
        "paper prints no difference and the interval lies within "
        f"{100 * margin['ppl']:g} % PPL or {margin['bleu']:g} BLEU.",
        PAPER_BLEU,
    ]
    if not report["sentence noise of BLEU"] and report["finished"]:
        lines.append("The references are not at hand: BLEU is tested with the noise of seeds alone.")
    if report["looks"] is not None:
        lines.append(
            "Seeds were added where a verdict was open (--seeds auto), so the study was looked at more than once: "
            f"{len(report['looks'])} of at most {report['most looks']} looks so far. Every look spends a share of the "
            "level (Lan and DeMets 1983), p-values are divided by that share, the smallest of all looks counts, and "
            f"intervals are at {report['interval level']:.2%}."
        )
    if not texts:
        lines.append("Made without any line of the corpus (--no-text).")
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"
