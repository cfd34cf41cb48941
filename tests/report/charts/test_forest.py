"""The main figure: what it leaves whole, in a terminal, on a screen and on a telephone."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pypdfium2 import PdfDocument

from lightning_tfm import report
from lightning_tfm.cli.terminal import align
from lightning_tfm.plural_words import MINUS, signed
from lightning_tfm.report.blocks import Column, Table
from lightning_tfm.report.charts.forest import Axis, Entry, Forest, Line, finding, tally
from lightning_tfm.report.charts.forest_picture import SLIM, WIDE, narrow, wide
from lightning_tfm.report.charts.forest_text import to_text
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.charts.svg import standalone_svg, to_pdf, to_png
from lightning_tfm.report.render import text as terminal
from lightning_tfm.report.summary import Scores
from lightning_tfm.report.wording.verdict_words import Verdict
from tests.helpers.studies import difference, summary, summary_row

PPL, BLEU = Axis("Perplexity", percent=True, lower_is_better=True), Axis("BLEU")
LONG = "no label smoothing, but a schedule that decays to zero"
LINES = [
    Line(
        "half the width", [Entry(37.2, 33.2, 41.4, "same direction", "× 2.03", 16.9, (34.0, 38.8)), Entry(-12.6)], "C-d"
    ),
    Line("dropout 0.2", [Entry(7.1, 5.3, 8.9, "differs where the paper shows none", "", 0.6), None]),
    Line(LONG, [Entry(1.5, -0.1, 3.1, "undecided", "about 13 seeds", 5.5), Entry(0.02, -1.2, 1.3, "undecided")]),
    Line("a third more depth", [Entry(-0.3, -1.5, 1.0, "no difference, as in the paper", "", 0.0), Entry(0.1)]),
]
FOREST = Forest("A title.", "Its scope.", [PPL, BLEU], LINES, "5 seeds", published="the paper")


def test_the_text_fits_the_terminal_with_names_numbers_and_verdicts_whole():
    text = to_text(FOREST, 80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    for line in LINES:
        assert line.name in " ".join(text.split()), line.name
        entry = line.entries[0]
        (own,) = [one for one in lines if entry.sure in one and PPL.number(entry.estimate) in one]
        assert own.endswith(f"{PPL.number(entry.estimate)}  {entry.sure}")
    assert [line.index("Is it sure?") for line in lines if "Is it" in line] == [lines[4].index("same direction")]
    assert "undecided, ~13 seeds" in text and f"{MINUS}0.3 %" in text and "-" not in text
    assert {len(line) for line in to_text(FOREST, 120).splitlines() if "BLEU" in line} != set(), (
        "there is room for both"
    )
    assert to_text(replace(FOREST, lines=[])) == ""


@pytest.mark.parametrize("name", ["머리가 여덟에서 하나로 줄어든 변환기", "a 🦆 of the model's width"])
def test_letters_two_columns_wide_do_not_move_what_stands_behind_them(name):
    def columns(line: str) -> int:
        return len(line) + len(re.findall("[가-힣🦆]", line))

    lines = [replace(LINES[0], name="half"), replace(LINES[0], name=name)]
    table = Table("", [Column("row", words=True), Column("n")], [["half", "5"], [name, "5"]])
    rows = [["half", "same direction"], [name, "same direction"]]
    for text, end in (
        (to_text(replace(FOREST, lines=lines), 80), "same direction"),
        (terminal.to_text([table]), "5"),
        (align(rows), "same direction"),
    ):
        assert len({columns(line) for line in text.splitlines() if line.endswith(end)}) == 1, text
        assert name.split()[0] in text and "\uffff" not in text
        assert max(map(columns, text.splitlines())) <= 80
    drawn = to_text(replace(FOREST, lines=lines, to=name), 80).splitlines()
    places = [columns(line.partition(end)[0]) for end in ("Is it sure?", "same") for line in drawn if end in line]
    assert len(places) == 3 and len(set(places)) == 1, "the head names the row that others are compared with"


def test_a_long_name_is_broken_between_words_and_not_within_one():
    for width in range(1, 20):
        name = f"{'n' * width} with self-attention alone"
        text = to_text(replace(FOREST, lines=[replace(LINES[0], name=name)]), 80)
        assert name.split()[0] in text and "self-attention" in text, text


def test_marks_stand_where_the_numbers_are_ours_above_the_published_one():
    row = next(line for line in to_text(FOREST, 80).splitlines() if line.startswith("half the width"))
    assert row.index("│") < row.index("◇") < row.index("╺") < row.index("●")
    equal = next(line for line in to_text(FOREST, 80).splitlines() if line.startswith("a third more"))
    assert "◇" not in equal and "●" in equal, "ours is above the paper's at the same place"
    undecided = next(line for line in to_text(FOREST, 80).splitlines() if "undecided" in line)
    assert "○" in undecided and "●" not in undecided


def test_colour_changes_no_letter():
    coloured = to_text(FOREST, 80, colour=True)
    assert "\033[" in coloured and re.sub(r"\033\[\d+m", "", coloured) == to_text(FOREST, 80)


def without_utf_8(script: str) -> str:
    """What `script` prints on a terminal that knows ASCII alone."""
    begin = "from lightning_tfm.cli.terminal import without_utf_8\nwithout_utf_8()\n"
    env = os.environ | {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(Path(__file__).parents[3])}
    shown = subprocess.run([sys.executable, "-c", begin + script], env=env, capture_output=True, check=True)
    return shown.stdout.decode("ascii")


def test_a_terminal_without_utf_8_gets_ascii_in_the_same_columns():
    text = without_utf_8(f"print({to_text(FOREST, 80)!a} + 'I\\xb2')")
    assert text.endswith("\nI2\n") and "-0.3 %" in text and "worse >" in text and "\\" not in text
    assert [len(line) for line in text.splitlines()[:-1]] == [len(line) for line in to_text(FOREST, 80).splitlines()]


def test_names_without_a_letter_that_the_terminal_knows_stay_apart_and_move_nothing():
    lines = without_utf_8(
        "from lightning_tfm.cli.terminal import align\n"
        "from lightning_tfm.report.blocks import Column, Table\n"
        "from lightning_tfm.report.render.text import to_text\n"
        "rows = [['half', '5'], ['\\uac00\\ub098', '5'], ['\\ub2e4\\ub77c', '5']]\n"
        "print(align(rows))\n"
        "print(to_text([Table('', [Column('row', words=True), Column('n')], rows)]))\n"
    ).splitlines()
    rows = [line for line in lines if line.endswith(" 5")]
    assert [row.split()[0] for row in rows] == ["half", r"\uac00\ub098", r"\ub2e4\ub77c"] * 2
    assert {len(row) for row in rows} == {15}


def test_a_figure_for_a_paper_holds_its_own_colours_and_is_a_pdf_and_a_png(tmp_path):
    css = (Path(report.__file__).parent / "templates" / "report.css").read_text().split("prefers-color-scheme")[0]
    palette = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{3,6})", css))
    for draw in (wide, narrow):
        picture = standalone_svg(draw(FOREST, titled=True))
        assert "class=" not in picture and "currentColor" not in picture and "data-tip" not in picture
        assert all(palette[name] in picture for name in ("found", "apart", "good", "open"))
        assert to_pdf(picture).startswith(b"%PDF") and to_png(picture, 1).startswith(b"\x89PNG")
        words = PdfDocument(to_pdf(picture))[0].get_textpage().get_text_range()
        assert f"{MINUS}0.3 %" in words and "half the width" in words, "its fonts have a minus"


def test_nothing_is_clipped_unless_it_would_more_than_halve_the_axis():
    near = [Line(f"r{i}", [Entry(float(i), i - 1.0, i + 1.0, "worse")]) for i in range(1, 9)]
    far = Line("far", [Entry(16.0, 15.0, 17.0, "worse")])
    whole = Forest("", "", [PPL], [*near, far])
    assert whole.ends(0) == (0.0, 17.0)
    huge = replace(whole, lines=[*near, Line("far", [Entry(1230.0, 1100.0, 1400.0, "worse")])])
    assert huge.ends(0) == (0.0, 9.0)
    text = to_text(huge)
    assert "+1230 %" in text and "▸" in next(line for line in text.splitlines() if line.startswith("far"))
    for picture in (wide(huge), narrow(huge)):
        assert "[+1100, +1400 %]" in picture and "+1230 %" in picture


def test_the_numbers_of_an_axis_that_ends_with_the_picture_are_whole():
    drawn = narrow(replace(FOREST, lines=[Line("a", [Entry(97.0, -50.0, 97.0, "undecided"), None])]))
    ticks = re.findall(r'<text x="([\d.]+)"[^>]*class="tick">([^<]*%)<', str(drawn))
    assert [words for _, words in ticks] == [f"{MINUS}50 %", "+50 %", "+100 %"]
    assert all(8 * len(words) / 2 <= float(x) <= SLIM - 8 * len(words) / 2 for x, words in ticks)


@pytest.mark.parametrize("draw", [wide, narrow])
def test_pictures_hold_every_name_number_and_verdict_inside(draw):
    picture = draw(FOREST, titled=True)
    root = ElementTree.fromstring(str(picture))
    words = " ".join("".join(text.itertext()) for text in root.iter("text"))
    for line in LINES:
        entry = line.entries[0]
        assert line.name in words and PPL.number(entry.estimate) in words and entry.sure in words
    width = {wide: WIDE, narrow: SLIM}[draw]
    for text in root.iter("text"):
        x, of, letter = float(text.attrib["x"]), "".join(text.itertext()), 6.0 if draw is narrow else 7.2
        anchor = text.get("text-anchor", "start")
        if "headline" not in text.get("class", ""):
            assert x - letter * len(of) * {"start": 0, "middle": 0.5, "end": 1}[anchor] >= -1, of
            assert x + letter * len(of) * {"start": 1, "middle": 0.5, "end": 0}[anchor] <= width, of
    assert "A title." in words and "Its scope." in words and "<title>" not in picture
    tips = [one.attrib["data-tip"] for one in root.iter() if "data-tip" in one.attrib]
    assert len(tips) == len(LINES) and tips[0].split("\n") == [
        "half the width (C-d)",
        "Perplexity +37 %, 95 % +33 to +41 %, the paper +17 %",
        "by seed: +34, +39",
        "same direction",
        f"BLEU {MINUS}12.6",
    ]


def test_a_title_is_whole_in_the_narrow_picture():
    long = replace(
        FOREST, title="Half the width, a third of the depth and a quarter of the key width cost most of all."
    )
    said = r'class="headline small"[^>]*>([^<]+)<'
    lines = re.findall(said, narrow(long, titled=True))
    assert " ".join(lines) == long.title
    assert all(9.3 * len(line) < SLIM for line in lines)
    brief = replace(long, brief="Half the width costs most.")
    assert re.findall(said, narrow(brief, titled=True)) == [brief.brief]
    assert brief.title.startswith(re.findall(r'class="headline"[^>]*>([^<]+)<', wide(brief, titled=True))[0])


def test_a_brief_title_names_fewer_changes():
    parts, worse = ("width", "depth", "heads"), Entry(9.0, 8.0, 10.0, "worse")
    lines = [Line(f"a change of the {part}", [worse], part) for part in parts]
    whole, brief = finding([PPL], lines), finding([PPL], lines, room=40)
    assert whole == "A change of the width, a change of the depth and a change of the heads are worse."
    assert brief == "A change of the width costs most."


def test_the_legend_s_ring_has_the_colour_of_the_rows_that_it_stands_for():
    undecided = Line("open", [Entry(1.0, -1.0, 3.0, "undecided"), None])
    for picture in (wide(replace(FOREST, lines=[*LINES, undecided])), narrow(replace(FOREST, lines=[undecided]))):
        rings = re.findall(r'<g class="(\w+)"[^>]*>(?:(?!</g>).)*?class="ours hollow"', picture)
        assert len(rings) > 1 and set(rings) == {"open"}


@pytest.mark.parametrize("draw", [wide, narrow])
def test_the_interval_of_an_estimate_beyond_the_axis_hides_no_mark(draw):
    far = Line("no dropout", [Entry(319.0, 294.0, 345.0, published=35.0), None])
    picture = ElementTree.fromstring(draw(replace(FOREST, lines=[far, *LINES])))
    (row,) = [g for g in picture.iter("g") if g.get("data-row") == "no dropout"]
    (diamond,) = [path for path in row.iter("path") if path.get("class") == "paper"]
    (words,) = [text for text in row.iter("text") if text.text == "[+294, +345 %]"]
    left = float(re.match(r"M([\d.]+)", diamond.get("d"))[1])
    assert words.get("text-anchor") == "end" and float(words.get("x")) < left
    assert not [box for box in row.iter("rect") if box.get("class") == "soft-band"], "all of it is beyond"


def test_an_interval_in_words_is_not_written_over_its_band():
    far = replace(LINES[0], entries=[replace(LINES[0].entries[0], estimate=9e3, lower=-5.0, upper=9e4), None])
    picture = str(narrow(replace(FOREST, lines=[far, *LINES[1:]])))
    assert re.search(r'class="soft-band"/>.*class="ground"/><text[^>]*>\[', picture)


def test_ours_is_drawn_after_the_published_mark():
    for picture in (wide(FOREST), narrow(FOREST)):
        row = picture[picture.index("half the width (C-d)") :]
        assert row.index('class="soft-band"') < row.index('class="paper"') < row.index('class="ours"')


def test_at_one_seed_there_are_estimates_without_bands_and_a_command():
    def row(name, ppl, base=False):
        return replace(summary_row(name, base=base), n=1).with_metrics(
            {"ppl": Scores(ppl, None, {"1": ppl}), "bleu": Scores(20.0, None, {"1": 20.0})}
        )

    single = summary([row("base", 4.0, base=True), row("a", 5.0), row("b", 3.0)])
    forest = forest_of(replace(single, seeds=[3]))
    assert [line.name for line in forest.lines] == ["a", "b"] and not forest.tested
    text = to_text(forest)
    assert "+25 %" in text and f"{MINUS}25 %" in text and "Is it sure?" not in text and "━" not in text
    assert "--seeds 3-7" in text and "soft-band" not in wide(forest) and "--seeds 3-7" in wide(forest)


def test_rows_are_sorted_the_worst_first_and_scored_by_the_verdict():
    def row(name, by, word):
        d = difference(word, estimate=by, lower=by - 1, upper=by + 1)
        return summary_row(name, word).with_metrics({"ppl": Scores(2.0, 1.0, {}, d), "bleu": Scores(20.0, 1.0, {}, d)})

    base = summary_row("base", base=True).with_metrics({"ppl": Scores(2.0, 1.0, {}), "bleu": Scores(20.0, 1.0, {})})
    forest = forest_of(summary([base, row("a", -2.0, "better"), row("b", 3.0, "worse"), row("c", 0.0, "undecided")]))
    assert [line.name for line in forest.lines] == ["b", "c", "a"]
    assert forest.title == "b is worse; a is better."
    assert forest.scope.startswith("Of 3 changes 1 is better; 1 is worse; 1 is undecided")


def test_the_sentences_say_what_was_found_and_never_more():
    assert finding([PPL], LINES) == "Half the width and dropout 0.2 are worse."
    assert finding([PPL], LINES[2:]) == "No change differs significantly from base."
    assert finding([PPL], []) == "Nothing is compared with base yet."
    elsewhere = [
        Line(name, [Entry(1.0, verdict="undecided"), Entry(by, verdict="worse")])
        for name, by in (("a", -1.0), ("b", -3.0))
    ]
    axes = [replace(PPL, prose="perplexity"), BLEU]
    no = "No change differs significantly from base"
    assert finding(axes, [*elsewhere, *LINES[2:]]) == f"{no} in perplexity; b and a differ in BLEU."
    assert finding(axes, LINES[2:]) == f"{no}."
    many = [replace(line, name=f"{'x' * 60} {i}") for i in "123" for line in elsewhere[:1]]
    assert finding(axes, many) == f"{no} in perplexity; {'x' * 60} 1 differs most in BLEU."
    said = tally(LINES, "5 seeds", "the paper")
    assert said == (
        "Of 4 changes 2 go the way of the paper, none against it; 1 is found only here; 1 is undecided with 5 seeds."
    )
    names = [Line("x" * 70 + str(i), [Entry(9.0 - i, verdict="worse")]) for i in range(5)]
    assert len(finding([PPL], names)) <= 150 and "0 costs most" in finding([PPL], names)


def test_numbers_have_real_minus_signs_and_nothing_has_a_sign_of_nothing():
    assert [signed(-0.3), signed(0.01), signed(-0.04), signed(12.0, 0)] == [f"{MINUS}0.3", "0.0", "0.0", "+12"]
    assert [PPL.number(37.2), PPL.number(9.94), PPL.number(-18.7)] == ["+37 %", "+9.9 %", f"{MINUS}19 %"]


def test_the_words_that_are_shown_are_few_letters_and_tell_verdicts_apart():
    assert len({word.shown for word in Verdict}) == len(Verdict) and max(len(word.shown) for word in Verdict) <= 20


def test_a_name_of_several_things_takes_the_verb_of_several():
    assert finding([PPL], [Line("four heads", [Entry(-3.0, verdict="better")], "A-h4")]) == "Four heads are better."
    assert finding([PPL], [Line("half the loss", [Entry(3.0, verdict="worse")], "half")]) == "Half the loss is worse."


def test_a_name_that_a_user_typed_keeps_its_letters():
    assert finding([PPL], [Line("qk_norm", [Entry(-3.0, verdict="better")])]) == "qk_norm is better."


def test_where_nothing_is_tested_an_estimate_whose_interval_holds_zero_is_not_named():
    spans = {"a": (3.0, 2.0, 4.0), "b": (-1.0, -2.0, -0.1), "odd seed": (74.0, -87.0, 2255.0)}
    lines = [Line(name, [Entry(*numbers, verdict="not testable")]) for name, numbers in spans.items()]
    assert finding([PPL], lines) == "Nothing is tested yet; by the estimates alone a is worse; b is better."
    assert finding([PPL], lines[2:]) == "Nothing is tested yet, and no interval excludes zero."
    assert finding([PPL], [Line("the same", [Entry(0.0)])]) == "Nothing is tested yet, and no interval excludes zero."
    assert "odd seed" in finding([PPL], [Line("odd seed", [Entry(74.0)])])  # one seed has no interval


@pytest.mark.parametrize("width", [80, 104, 132])
def test_both_sides_have_their_arrows(width):
    """The zero line stands so far to the left that "better" reaches over the heading's empty columns."""
    lines = [
        Line(f"change {i} of a rather long name", [Entry(e, e - 2, e + 2, "worse", "", e)])
        for i, e in enumerate((37.0, 19.0, -6.0))
    ]
    text = to_text(Forest("t", "s", [PPL], lines, "5 seeds"), width)
    (head,) = (line for line in text.splitlines() if "better" in line)
    assert "◂ better│ worse ▸" in head and len(head) <= width
    zero = head.index("│")
    assert all(line[zero] in "│━╸╺●" for line in text.splitlines() if line.endswith("worse"))


def test_a_scope_does_not_count_one_kind_of_many():
    undecided = [Line(name, [Entry(0.1, -1, 1, "undecided")]) for name in "abc"]
    assert tally(undecided, "5 seeds", "") == "All 3 changes are undecided with 5 seeds."
    assert tally(undecided[:1], "5 seeds", "") == "1 change is undecided with 5 seeds."


def test_a_change_that_diverged_has_no_place_in_the_picture_and_is_named():
    assert tally(LINES[1:2], "", "", ["warm-up 10"]).endswith(". Diverged in some seeds: warm-up 10.")
    assert tally([], "", "", list("abcde")) == "Diverged in some seeds: a, b, c and 2 more."
