"""Summary and cells -> the ablation's page."""

from lightning_tfm.report import page_agreement, page_pictures, page_runs, page_table
from lightning_tfm.report.cells import Cells
from lightning_tfm.report.document import Plain, document, text
from lightning_tfm.report.formats import TWO_SEEDS, two_seeds
from lightning_tfm.report.plateau import FAR

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
    tau = report["clear"]
    limit = f"{100 * tau['ppl']:.1f} % PPL or {tau['bleu']:.2f} BLEU"
    lines = [
        "PPL is dev perplexity per piece, end token included. Differences in perplexity are tested as differences of "
        "its logarithm and shown in percent. Perplexity is the primary metric; BLEU is a noisier copy of it.",
        "A difference has two kinds of noise: training (seeds; the variance of a row is moderated by the study's, "
        "Smyth 2004) and test set (sentences; paired bootstrap on the same resamples for all runs, Koehn 2004).",
        "The claims of section 6.2 are the confirmatory family: tested in perplexity, a claim about several rows needs "
        f"all of them, corrected by Holm 1979 at {report['alpha']:g}.",
        "The rows are exploratory: a row is found to differ where p (BH), corrected over the rows of its metric by "
        f"Benjamini and Hochberg 1995, is below {report['alpha']:g}, which bounds the expected share of false ones "
        "among the rows found. Bold: Holm's p over the same rows is below it too, which bounds the chance of any false "
        "one. The printed interval is the marginal 95 % one.",
        "The paper printed single runs. With a standard deviation over seeds of 0.5 % in PPL and 0.3 BLEU (NVIDIA's "
        "notes on checkpoints of its Transformer; the spread of published reproductions) a printed difference is clear "
        f"only beyond {limit}.",
        "reproduced: the printed difference is clear, and ours is found with the same sign; beside it ours as a "
        "multiple of the printed one, with the interval of ours. contradicted: found with the opposite sign. "
        "found here, paper unclear: the printed difference is not clear. smaller than printed (at full size only): "
        "clear, not found, and below half of the printed one by a one-sided test at 1 %. no difference in either: not "
        f"clear, and ours lies within {limit} by two one-sided tests at 5 %. undecided: all else, with the "
        "number of seeds that would decide it if the difference is as estimated (point at the word for the difference "
        f"that would have been found with a probability of about {report['power']:.0%}). better, worse: the paper "
        "prints no such row.",
        PAPER_BLEU,
    ]
    if any(r["plateaued"] for r in report["rows"]):
        lines.append(
            f"plateaued: a seed whose log PPL lies more than {FAR:g} median absolute deviations (the row's or the "
            "study's, the larger) above its row's median. It stays in every number."
        )
    if two_seeds(report):
        lines.append(TWO_SEEDS[0].upper() + TWO_SEEDS[1:] + ".")
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
