"""What the page's pictures are made of: rows that share one, labels that differ, attention packed, sentences chosen."""

import json
import math
import re
from dataclasses import replace

import pytest

from lightning_tfm.report import attention, translations
from lightning_tfm.report.build import make
from lightning_tfm.report.curves import POINTS, curves, thinned
from lightning_tfm.report.forest import forest
from lightning_tfm.report.panels import panels, short_names
from lightning_tfm.report.summary import Difference, Metric
from lightning_tfm.report.svg import Scale
from lightning_tfm.study.rows import all_rows
from tests.records import summary, summary_row


def rows(*names, group="A"):
    return [replace(summary_row(name, "undecided", base=name == "base"), group=group) for name in names]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    from tests.report.synthetic import Generator

    found = Generator(tmp_path_factory.mktemp("r"), list(all_rows())[:10], [1, 2])
    found.write_all({"A-h1": 0.3})
    return found


def test_few_rows_share_a_picture_and_many_have_one_for_each_group_beside_base():
    (one,) = panels(rows("base", *"abcdefg"))
    assert one.rows[0] == "base" and one.classes["base"] == "g0" and len(set(one.classes.values())) == 8
    found = panels([*rows("base"), *rows(*"abcdefgh"), *rows("x", group="B")])
    assert [(p.title, p.rows) for p in found] == [
        ("A, 1 of 2", ["base", *"abcd"]),
        ("A, 2 of 2", ["base", *"efgh"]),
        ("B", ["base", "x"]),
    ]


def test_shortened_names_stay_apart():
    same = rows("base", *(f"norm={n}, warmup={w}, P_drop=0.1" for n in ("pre", "post") for w in (400, 800)))
    assert list(short_names(same, 20).values()) == [
        "base",
        "pre, 400, 0.1",
        "pre, 800, 0.1",
        "post, 400, 0.1",
        "post, 800, 0.1",
    ]
    ends = short_names(rows("a" * 30 + "1", "a" * 30 + "2"), 20)
    assert len(set(ends.values())) == 2 and all(len(name) == 20 for name in ends.values())
    assert short_names(rows("short", "b")) == {"short": "short", "b": "b"}


def test_a_curve_has_few_points_and_its_last():
    assert thinned(range(1000))[-1] == 999 and thinned(range(1000))[0] == 0 and len(thinned(range(1000))) == POINTS
    assert thinned([1, 5, 9]) == [1, 5, 9]


def test_the_axis_is_logarithmic_at_first_where_one_row_dwarfs_the_rest(made, generator):
    report = make("made", made.root)
    found = curves(report.summary, report.cells)
    assert not found.log and len(found.panels) == 3 and found.together is not None and not found.narrow
    few = generator(["base", "A-h1", "A-h4"], [1])
    few.write_all({"A-h1": 2.0})
    one = make("made", few.root)
    found = curves(one.summary, one.cells)
    assert found.log and len(found.panels) == len(found.narrow) == 1 and found.together is None
    assert one.render("html").count('<input type="checkbox" checked> logarithmic axis') == 1


def test_what_is_far_out_stands_at_the_edge_with_its_number():
    def row(name, by):
        d = Difference("worse", "", None, estimate=by, lower=by - 1, upper=by + 1)
        return replace(summary_row(name, "worse"), bleu=Metric(20.0, 1.0, {}, d))

    near = [row(f"r{i}", 1.0 + i / 10) for i in range(8)]
    picture = forest(summary([*rows("base"), *near, row("far", -50.0)]), "bleu")
    assert "\N{LEFTWARDS ARROW} -50" in picture and "far: -50.00 [-51.00, -49.00]" in picture
    ticks = [float(x) for x in re.findall(r'class="tick">(-?[\d.]+)<', picture)]
    assert min(ticks) > -10, "the others are not squeezed together"


SQUARE = [[[[1000, 0], [300, 700]], [[500, 500], [0, 1000]]]]
"""one layer, two heads"""


def collected(made, count):
    words = {"source": ["a", "b"], "target_in": ["<s>", "c"]}
    one = words | {"encoder": SQUARE, "decoder": SQUARE, "cross": SQUARE}
    for row in made.study.rows[:count]:
        for seed in made.study.seeds:
            folder = made.folder(row, seed).path / "report"
            folder.mkdir(exist_ok=True)
            (folder / "attention.json").write_text(json.dumps({"sentences": [one]}))


def test_weights_are_packed_exact_to_a_63rd(made):
    collected(made, 3)
    found = attention.attention(make("made", made.root).cells)
    assert found["sentences"] == [{"source": ["a", "b"], "target_in": ["<s>", "c"]}] and found["left_out"] == 0
    assert [(run["row"], run["seed"]) for run in found["runs"]] == [
        (name, seed) for name in ("base", "A-h1", "A-h4") for seed in (1, 2)
    ]
    first = found["runs"][0]["sentences"][0]["encoder"][0]
    weights = [attention.ALPHABET.index(c) / 63 for c in first["heads"][0]]
    assert weights == pytest.approx([1, 0, 0.3, 0.7], abs=0.5 / 63)
    entropy = -(0.3 * math.log2(0.3) + 0.7 * math.log2(0.7)) / 2
    assert first["bits"] == [round(entropy, 2), 0.5]


def test_a_page_takes_no_more_attention_than_it_can_hold(made):
    collected(made, 3)
    cells = make("made", made.root).cells
    size = 3 * 2 * 4  # kinds, heads, weights
    found = attention.attention(cells, most=4 * size)
    assert [(run["row"], run["seed"]) for run in found["runs"]] == [("base", 1), ("base", 2), ("A-h1", 1), ("A-h4", 1)]
    assert found["left_out"] == 2, "the first seed of every row before any second, base before the others"


def test_the_same_sentences_of_every_row(made):
    cells = make("made", made.root).cells
    found = translations.translations(cells)
    assert 8 <= len(found) <= translations.CONTESTED + translations.SPREAD
    for sentence in found:
        assert [t.row for t in sentence.rows] == list(all_rows())[:10]
        assert sentence.reference == cells.references[sentence.line - 1]
    line = (made.folder(made.study.rows[1], 1).path).glob("scores/*/val.hyp.txt")
    (hypotheses,) = [path.read_text().splitlines() for path in line]
    for sentence in found:
        said = " ".join(words for words, _ in sentence.rows[1].parts)
        assert said == " ".join(hypotheses[sentence.line - 1].split())
    assert translations.translations(replace(cells, references=[])) == []


def test_words_that_the_reference_has_not_there_are_marked():
    assert translations.compared("a x b c", "a b c d") == [("a", True), ("x", False), ("b c", True)]
    assert translations.compared("", "a") == []


@pytest.mark.parametrize(
    "low, high, ticks",
    [
        (25, 140, [30, 40, 50, 60, 80, 100]),
        (1, 1000, [1, 10, 100, 1000]),
        (2, 90, [2, 5, 10, 20, 50]),
        (1.91, 1.93, None),
    ],
)
def test_a_logarithmic_axis_has_four_ticks_at_least_where_round_values_are_inside(low, high, ticks):
    found = Scale(low, high, 0, 100, log=True).ticks()
    assert found == ticks or (ticks is None and len(found) >= 2 and all(low <= x <= high for x in found))
