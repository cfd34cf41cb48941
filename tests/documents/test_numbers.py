"""The numbers of README, findings and benchmarks are those of the committed records."""

import json
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from benchmarks import distance
from lightning_tfm.config import Data
from lightning_tfm.data.builtin import Builtin

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
PAGES = {
    "docs/results/modern.md": (("modern", "forecast"), 8),
    "docs/results/layers.md": (("layers",), 15),
    "docs/results/relative.md": (("relative",), 11),
    "docs/results/scores.md": (("scores",), 7),
    "docs/results/stack.md": (("stack",), 8),
    "docs/results/parsing.md": (("parsing",), 10),
    "docs/results/language-model.md": (("language-model", "language-model-text"), 20),
    "docs/results/heads-tuned.md": (("heads-tuned",), 4),
    "docs/results/miniature.md": (("miniature-8-epochs",), 1),
    "docs/claims.md": (("claims", "modern"), 4),
}
"""page -> the studies whose tables it quotes, and how many intervals it has at least in lines that name a row"""
INTERVAL = re.compile(r"([+-]?\d[\d.]*)(?: %)? \[([+-]?[\d.]+), ([+-]?[\d.]+)\]")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8").replace("\N{MINUS SIGN}", "-")


def table(study: str) -> str:
    return page(f"experiments/results/{study}/table.md")


def rows(study: str) -> dict[str, str]:
    """row -> its line in the committed table of a study."""
    lines = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table(study).splitlines()]
    column = lines[0].index("row")
    return {line[column]: " | ".join(line) for line in lines[2:] if len(line) > column + 3}


def intervals(text: str) -> set[tuple[float, ...]]:
    return {tuple(map(float, found)) for found in INTERVAL.findall(text)}


def rounded(there: set[tuple[float, ...]], found: tuple[float, ...]) -> list[tuple[float, ...]]:
    """Those of a table, as whole numbers where the page has whole numbers."""
    whole = all(value == int(value) for value in found)
    return [tuple(map(round, one)) if whole else one for one in there]


def wrong(text: str, studies: tuple[str, ...]) -> tuple[list[str], int]:
    """Intervals in lines that name a row of the studies, and that no such row has; how many were looked up."""
    known = [rows(study) for study in studies]
    missing, seen = [], 0
    for line in text.splitlines():
        names = [{name for name in of if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", line)} for of in known]
        names = [found - {"base"} for found in names]
        if not line.startswith("|") or not any(names) or "to either side" in line:
            continue
        there = set().union(*(intervals(of[name]) for of, found in zip(known, names, strict=True) for name in found))
        asked = intervals(line)
        seen += len(asked)
        missing += [f"{found} in {line}" for found in asked if found not in rounded(there, found)]
    return missing, seen


@pytest.mark.parametrize("name", PAGES)
def test_the_intervals_of_a_finding_are_those_of_its_table(name):
    studies, least = PAGES[name]
    missing, seen = wrong(page(name), studies)
    assert not missing and seen >= least


def test_a_changed_number_is_seen():
    text = page("docs/results/modern.md")
    assert wrong(text.replace("-9.4 [-11.7", "-9.4 [-11.6"), ("modern", "forecast"))[0]
    assert wrong(text.replace("-9.4 [-11.7", "-9.5 [-11.7"), ("modern", "forecast"))[0]


def agreement(study: str) -> dict[str, str]:
    """What the committed table says of all rows' agreement with the paper in log PPL.

    Tables of before November 2026 also have intervals: over the rows (`over`), and of the difference to the parameter
    count's correlation (`less`).
    """
    (line,) = re.findall(
        r"^- Agreement with the paper in log PPL, (?:all rows|19 rows:).*$", table(study), re.MULTILINE
    )
    parts = {
        "side": r"(?:side|sign here) (\d+ of \d+)",
        "rank": r"rank correlation \([Ss]pearman\) (-?[\d.]+)",
        "size": r"parameter count alone,? ?(?:nothing trained )?([\d.]+)",
        "over": r"sample of rows (\[[^]]+\])",
        "less": r"over rows ([+-][\d.]+ \[[^]]+\])",
    }
    found = {key: got[1] for key, part in parts.items() if (got := re.search(part, line))}
    assert {"side", "rank", "size"} <= found.keys(), line
    return found


def verdicts(study: str) -> dict[str, int]:
    """verdict on perplexity -> number of rows."""
    (line,) = re.findall(r"^- PPL, \d+ rows: (.*?) \(", table(study), re.MULTILINE)
    return {words: int(count) for count, words in (part.split(" ", 1) for part in line.split("; "))}


def test_readme_and_the_first_finding_say_what_table_3_gave():
    readme, finding = page("README.md"), page("docs/results/miniature.md")
    found, numbers = agreement("miniature-8-epochs"), verdicts("miniature-8-epochs")
    both, sign = numbers["reproduced"], numbers["reproduced"] + numbers["same direction"]
    assert "contradicted" not in numbers and (both, sign) == (2, 13)
    said = f"Of the paper's 15 differences that exceed seed noise, {sign} are significant here"
    assert said in " ".join(readme.split())
    assert f"In direction, {sign} of 15; in size, twice." in readme
    assert f"rank correlation with the paper {found['size']}; ours {found['rank']})" in readme
    said = [f"{found['side']}, where 11 would"]
    said += (
        [f"{found['rank']} {found['over']}", found["less"]]
        if "over" in found
        else [f"rank correlation {found['rank']}"]
    )
    assert not [one for one in said if one not in finding]


def test_real_text_gives_the_correlations_of_its_studies():
    text = page("docs/results/real-text.md")
    early, late = agreement("tatoeba"), agreement("tatoeba-8-epochs")
    assert re.search(rf"\| {early['rank']} [^|]*\| \*\*{late['rank']}\*\* [^|]*\| {late['size']} \|", text)
    for found in (early, late):
        assert all(found[key] in text for key in ("over", "less") if key in found)
    assert (early["side"], late["side"]) == ("8 of 15", "14 of 15") and "of 15 rows | 8 | 14 |" in text
    for study, line in (("tatoeba", "Tatoeba"), ("manpages", "Unix"), ("multi30k", "Multi30k")):
        rank = re.escape(agreement(study)["rank"])
        assert re.search(rf"^\| {line}[^\n]*\*\*{rank}\*\* \|$", text, re.MULTILINE), study
    assert "14 of 15 have the paper's sign" in page("README.md")


def test_all_studies_together_say_what_their_table_has():
    text = " ".join(page("docs/results/worth.md").split())
    lines = {name: [cell.strip("*") for cell in line.split(" | ")] for name, line in rows("meta-analysis").items()}
    published, synthetic, *at_20, at_8 = map(float, lines["D-Pdrop0.0"][2:8])
    said = f"**No dropout** costs {min(at_20):.0f} to {max(at_20):.0f} % on the three real corpora read 20 times, "
    assert said + f"{synthetic:.0f} and {at_8:.0f} % in the other two studies, {published:.0f} % in the paper" in text
    assert f"(-5.1 %) and raises it in {['five', 'four'][int(lines['D-eps0.0'][8])]} of five" in text
    assert lines["D-eps0.0"][2] == "-5.1" and lines["A-h4"][2] == "+1.6" and lines["A-h4"][8] == "0"
    hurt = {"C-dmodel256", "C-N2", "B-dk16", "A-h32", "D-Pdrop0.0"}
    assert hurt == {name for name, line in lines.items() if line[8] == "5"}


def test_modern_variants_are_counted_as_in_their_table():
    numbers = verdicts("modern")
    assert numbers == {"better": 6, "worse": 2, "undecided": 13}
    text = page("docs/results/modern.md")
    assert "Six changes beat" in text and "Two are worse" in text and "The other 13 are undecided" in text


def test_the_full_training_on_real_text_is_the_record_s():
    record = json.loads((RESULTS / "multi30k.json").read_bytes())
    scores = json.dumps(record["scores"])
    assert re.search(r'"bleu": 35\.[45]\d*', scores)
    assert "35.5 sacreBLEU" in page("README.md") and "**35.5 sacreBLEU**" in page("docs/results/real-text.md")


def speeds(name: str) -> dict[str, float]:
    """contestant -> target tokens per second."""
    lines = re.findall(r"^\| ([\w ,]+) \| ([\d.e+]+) \|", page(f"benchmarks/results/{name}.md"), re.MULTILINE)
    return {who: float(speed) for who, speed in lines}


def test_readme_s_speeds_are_the_benchmarks():
    ratios = []
    for name in ("train-small", "train-base", "train-miniature"):
        found = speeds(name)
        peers = [found[peer] for peer in ("torch_nn", "hf_marian", "x_transformers", "joeynmt")]
        ratios += [found["ours"] / peer for peer in peers]
    assert f"{min(ratios):.1f} to {max(ratios):.1f} times as fast as four peers" in page("README.md")


def test_error_rates_are_the_simulations():
    text = page("benchmarks/results/plateaus.txt")
    lines = re.findall(r"^ +\d+ +(\d+|auto) +(.*?) +([\d.]+) +[\d.]+ +[\d.]+$", text, re.MULTILINE)
    five = {
        kind: max(Decimal(false) for seeds, noise, false in lines if seeds == "5" and noise.startswith("gap") == kind)
        for kind in (False, True)
    }
    three = max(float(false) for seeds, _, false in lines if seeds == "3")
    usual, plateaus = (five[kind].quantize(Decimal("0.1"), ROUND_HALF_UP) for kind in (False, True))
    assert f"at most {usual} % in log PPL, {plateaus} % with plateaus" in page("docs/benchmarks.md")
    said = f"up to {three:.0f} % of simulated three-seed studies; with five it is at most {plateaus} %"
    assert said in " ".join(page("docs/mistakes.md").split())


def test_costs_are_the_benchmarks():
    text = page("docs/benchmarks.md")
    (bare,) = re.findall(r"ours / bare, median over the rounds: ([\d.]+)", page("benchmarks/results/overhead.txt"))
    each, shared = re.findall(
        r"scoring: ([\d.]+) s.*?shared out: ([\d.]+) s,", page("benchmarks/results/queue.md"), re.DOTALL
    )[0]
    assert f"{float(bare):.2f} of its time" in text
    assert f"{each} s; {float(shared):.1f} s with imports, data and table" in text


# --- agreement over a distance (docs/claims.md, 5) ---


@pytest.fixture(scope="module")
def pairs():
    return distance.planted_pairs(Data(corpus="builtin", pairs=2700))


def test_every_class_has_its_sentences_of_which_none_is_in_train(pairs):
    assert len(pairs) == len({pair.source for pair in pairs}) == distance.SENTENCES * len(distance.CLASSES)
    for number, (least, most) in enumerate(distance.CLASSES.values()):
        of_class = pairs[number * distance.SENTENCES : (number + 1) * distance.SENTENCES]
        assert all(least <= pair.distance <= most for pair in of_class)
    assert not {pair.source for pair in pairs} & {source for source, _ in Builtin(2700, 0).lines("train")}


def test_the_verb_alone_differs_and_what_lies_between_ends_in_another_vowel(pairs):
    for pair in pairs:
        right, *wrong = (line.split() for line in pair.targets())
        assert len(wrong) == len(distance.VOWELS) - 1
        for line in wrong:
            assert [i for i, (a, b) in enumerate(zip(right, line, strict=True)) if a != b] == [pair.verb]
        vowel = pair.target[pair.verb][-2]
        head = pair.target[pair.verb - pair.distance] if pair.distance else ""
        if pair.distance:
            assert re.fullmatch(f"w{vowel}n", head), "a relative pronoun of the subject, in the accusative"
            assert pair.target[pair.verb - 1][-2] != vowel


def test_the_page_has_the_table_of_the_committed_counts():
    record = json.loads((ROOT / "experiments/results/claims/distance.json").read_bytes())
    text = (ROOT / "docs/claims.md").read_text(encoding="utf-8")
    lines = {line["row"]: line for line in distance.table(record)}
    assert {line["seeds"] for line in lines.values()} == {3} and record["sentences"] == distance.SENTENCES
    for name, line in lines.items():
        cells = next(row for row in text.split("\n") if re.match(rf"\| {name} \| [^|]+ \|( [\d.]+ \|){{5}}", row))
        *numbers, beyond = (cell.strip() for cell in cells.strip("|").split("|")[2:])
        assert numbers == [f"{value:.1f}" for value in (*line["right"], line["fall"])]
        if name != "base":
            low, high = line["interval"]
            assert beyond == f"{line['extra']:+.1f} [{low:+.1f}, {high:+.1f}]"
    p = [line["p"] for line in lines.values() if "p" in line]
    assert min(p) == lines["L-near3"]["p"] == pytest.approx(0.065, abs=0.005)
