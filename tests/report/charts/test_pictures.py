"""What the page's pictures are made of: rows that share one, labels that differ, attention packed, sentences chosen."""

import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

import lightning_tfm.report
from lightning_tfm.cli.main import main
from lightning_tfm.config import Experiment
from lightning_tfm.model.size import count_parameters
from lightning_tfm.plural_words import MINUS
from lightning_tfm.report import archive
from lightning_tfm.report.analyses import architecture, head_ablation, layer_table, softmax
from lightning_tfm.report.analyses.quality import quality
from lightning_tfm.report.charts.chart import SHORT, SLIM, Axis, Chart, Point, Series, below, draw
from lightning_tfm.report.charts.curves import POINTS, curves, falls, thin_steps
from lightning_tfm.report.charts.panels import BASE, panels, row_classes, short_names
from lightning_tfm.report.charts.study_forest import forest_of
from lightning_tfm.report.charts.svg import (
    Scale,
    figure,
    in_percent,
    label,
    standalone_column,
    standalone_svg,
    tag,
    tick_text,
)
from lightning_tfm.report.pages import sentences, shared
from lightning_tfm.report.render.text import to_text
from lightning_tfm.report.study_report import make
from lightning_tfm.report.tables.columns import FACTS
from lightning_tfm.report.wording.headline import headline
from lightning_tfm.study.rows import all_rows, apply, load_rows
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.study.study_file import folder_of
from tests.helpers.studies import Generator, summary_row, write_json
from tests.measure.test_layers import table as measured_table


def rows(*names, group="A"):
    return [replace(summary_row(name, "undecided", base=name == "base"), group=group) for name in names]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
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
    fields = [("pre", 400), ("pre", 800), ("post", 400), ("post", 800)]
    combined = [
        replace(row, label="", values={"norm": norm, "warmup": warmup, "lr_factor": 0.5})
        for row, (norm, warmup) in zip(
            rows(*(f"norm={n}, warmup={w}, lr_factor=0.5" for n, w in fields)), fields, strict=True
        )
    ]
    assert list(short_names(combined).values()) == [f"norm {n}, warm-up {w}, rate × 0.5" for n, w in fields]
    ends = short_names(rows("a" * 30 + "1", "a" * 30 + "2"), 20)
    assert len(set(ends.values())) == 2 and all(len(name) == 20 for name in ends.values())
    assert short_names(rows("short", "b")) == {"short": "short", "b": "b"}


EXPONENTS = {"K": "e3", "M": "e6", "G": "e9", "T": "e12"}


@pytest.mark.parametrize("unit", [1e-9, 1e-3, 1.0, 1e3, 1e5, 1e10])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("to", [1.3, 1.5, 2.0, 4.0, 9.0, 30.0])
def test_ticks_are_told_apart_and_say_where_they_are(unit, log, to):
    ticks = Scale(unit, unit * to, 0.0, 100.0, log).ticks()
    told = [tick_text(tick) for tick in ticks]
    assert len(set(told)) == len(ticks) > 0
    for tick, words in zip(ticks, told, strict=True):
        plain = re.sub("[KMGT]", lambda unit: EXPONENTS[unit[0]], words).replace(MINUS, "-")
        assert float(plain) == pytest.approx(tick, rel=1e-3)


def test_a_curve_has_few_points_and_its_last():
    assert (
        thin_steps(range(1000))[-1] == 999
        and thin_steps(range(1000))[0] == 0
        and len(thin_steps(range(1000))) == POINTS
    )
    assert thin_steps([1, 5, 9]) == [1, 5, 9]


def ends(picture: str) -> dict[str, str]:
    """row -> its name at its line's end, of the form for wide screens."""
    wide = str(picture).split("on-phones")[0]
    return dict(re.findall(r'data-row="([^"]+)".*?class="end">([^<]+)<', wide))


def test_curves_say_how_far_rows_are_from_base_at_the_same_share_of_their_training(made):
    report = make("made", made.root)
    found = curves(report.summary, report.cells, forest_of(report.summary))
    drawn = ends(found.difference)
    assert "base" not in drawn and set(drawn) == {row.name for row in report.summary.rows if not row.base}
    assert drawn["A-h1"].startswith("+37 % one head"), "0.3 in log PPL and noise"
    assert "logarithmic axis" in found.itself and set(ends(found.itself)) == {"base", *drawn}
    assert falls(2.0, 4.1) and not falls(2.0, 3.9)


def test_no_row_has_a_curve_of_differences_without_base(generator):
    for rows, classes in (["base"], []), (["base", "A-h1", "A-h4"], ["g1", "g2"]):
        one = generator(rows, [1])
        one.write_all()
        report = make("made", one.root)
        found = curves(report.summary, report.cells, forest_of(report.summary))
        assert re.findall(r'class="series ([^"]+)"', found.difference)[: len(classes)] == classes, (
            "no verdicts at one seed"
        )
        assert bool(found.difference) == bool(classes) and found.itself
    many = generator(list(all_rows())[1:11], [1], "many")
    many.write_all()
    page = make("many", many.root).render("html")
    assert "<figcaption>Mean over seeds.</figcaption>" in page and 'class="band"' not in page


def test_an_axis_around_zero_holds_every_difference_and_its_ticks_have_real_minus_signs():
    values = [-60.0, -2.0, 0.0, 3.0, 110.0]
    line = [Point(float(i), value) for i, value in enumerate(values)]
    picture = draw(Chart("t", Axis("x"), Axis("y", around=2.0, percent="base"), [Series("a", line)]))
    heights = [float(pair.split(",")[1]) for pair in re.search(r'polyline points="([^"]+)"', picture)[1].split()]
    assert heights == sorted(heights, reverse=True) and min(heights) >= 26 and max(heights) <= 340 - 44
    ticks = re.findall(r'class="tick">([^<]+ %|base)</text>', picture)
    assert "base" in ticks and "\N{MINUS SIGN}50 %" in ticks and "+50 %" in ticks
    small = in_percent(Scale(-0.1, 0.1, 0.0, 100.0), "base").values()
    assert list(small) == [f"{MINUS}0.1 %", f"{MINUS}0.05 %", "base", "+0.05 %", "+0.1 %"]


def test_a_long_name_at_a_lines_end_is_in_two_lines_on_a_phone_and_none_covers_another():
    name, line = "+21 % two thirds of the depth", [Point(0.0, 1.0), Point(1.0, 1.0)]
    chart = Chart("", Axis(), Axis(), [Series(k, line, label=name) for k in ("a", "b")], (380, 400))
    ends = re.findall(r'y="([\d.]+)" class="end">([^<]+)<', draw(chart, SLIM, SHORT))
    assert [words for _, words in ends] == 2 * ["+21 % two thirds of", "the depth"]
    heights = [float(y) for y, _ in ends]
    assert all(b - a >= 14 for a, b in pairwise(heights))


def test_names_of_points_cover_nothing():
    at = [(1.0, 1.0), (1.0, 1.01), (1.01, 1.0), (2.0, 2.0)]
    points = [Series(f"row {i}", [Point(*place)], label=f"row {i}", line=False) for i, place in enumerate(at)]
    picture = draw(Chart("t", Axis("x"), Axis("y"), points))
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)"( text-anchor="end")? class="beside">(row \d)', picture)
    assert len(found) == 4
    boxes = [(float(x) - 6 * len(name) * bool(end), float(y), name) for x, y, end, name in found]
    for i, (x, y, name) in enumerate(boxes):
        assert all(abs(y - v) >= 13 or abs(x - u) >= 6 * len(name) for u, v, _ in boxes[:i])


FLOPS = next(fact for fact in FACTS if fact.name == "flops")


def test_perplexity_against_a_size_that_all_rows_share_is_no_picture(made):
    found = make("made", made.root).summary
    assert quality(found.rows, FLOPS, {})
    same = replace(found, rows=[replace(row, flops=1e12 * (1 + i / 1000)) for i, row in enumerate(found.rows)])
    assert not quality(same.rows, FLOPS, {})


SQUARE = [[[[1000, 0], [300, 700]], [[500, 500], [0, 1000]]]]
"""one layer, two heads"""


@pytest.fixture
def attended(made):
    """Cells, of which those of three rows have a sentence."""
    words = {"source": ["a", "b"], "target_in": ["<s>", "c"]}
    one = words | {"encoder": SQUARE, "decoder": SQUARE, "cross": SQUARE}
    for row in made.study.rows[:3]:
        for seed in made.study.seeds:
            put(made, row, seed, "attention", {"sentences": [one]})
    return make("made", made.root).cells


def test_weights_are_packed_exact_to_a_63rd(attended):
    found = sentences.attention(attended)
    assert found["sentences"] == [{"source": ["a", "b"], "target_in": ["<s>", "c"]}] and found["left_out"] == 0
    assert [(run["row"], run["seed"]) for run in found["runs"]] == [
        (name, seed) for name in ("base", "A-h1", "A-h4") for seed in (1, 2)
    ]
    first = found["runs"][0]["sentences"][0]["encoder"][0]
    weights = [sentences.ALPHABET.index(c) / 63 for c in first["heads"][0]]
    assert weights == pytest.approx([1, 0, 0.3, 0.7], abs=0.5 / 63)
    entropy = -(0.3 * math.log2(0.3) + 0.7 * math.log2(0.7)) / 2
    assert first["bits"] == [round(entropy, 2), 0.5]


def test_a_page_takes_no_more_attention_than_it_can_hold(attended):
    size = 3 * 2 * 4  # kinds, heads, weights
    found = sentences.attention(attended, most=4 * size)
    assert [(run["row"], run["seed"]) for run in found["runs"]] == [("base", 1), ("base", 2), ("A-h1", 1), ("A-h4", 1)]
    assert found["left_out"] == 2, "the first seed of every row before any second, base before the others"


def test_the_same_sentences_of_every_row(made):
    cells = make("made", made.root).cells
    found = sentences.translations(cells)
    assert 8 <= len(found) <= sentences.CONTESTED + sentences.SPREAD
    for sentence in found:
        assert [t.row for t in sentence.rows] == list(all_rows())[:10]
        assert sentence.reference == cells.references[sentence.line - 1]
    (hypotheses,) = made.folder(made.study.rows[1], 1).path.glob("scores/*/val.hyp.txt")
    lines = hypotheses.read_text().splitlines()
    for sentence in found:
        said = " ".join(words for words, _ in sentence.rows[1].parts)
        assert said == " ".join(lines[sentence.line - 1].split())
    assert sentences.translations(replace(cells, references=[])) == []


def test_words_that_the_reference_has_not_there_are_marked():
    assert shared.compared("a x b c", "a b c d") == [("a", True), ("x", False), ("b c", True)]
    assert shared.compared("", "a") == []


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


# --- what rows of scores, positions and layer types ask for ---


def heads(saturated: float, passed: float) -> dict:
    """Of every kind one layer of one head: 100 softmaxes."""
    return {kind: [[[100.0, 50.0, saturated, 10.0, passed]]] for kind in ("encoder", "decoder", "cross")}


def put(made, row, seed, name, record):
    """What --collect leaves in a run that is there."""
    if (folder := made.folder(row, seed).path).is_dir():
        write_json(folder / "report" / f"{name}.json", record)


WORTH = [{"nll": 0.2, "low": 0.1, "high": 0.3, "bleu": -1.5}, {"nll": -0.01, "low": -0.02, "high": 0.0, "bleu": 0.1}]
HEADS = {"lines": 9, "beam": 4, "alpha": 0.6, "nll": 1.5, "bleu": 20.0}
HEADS |= {"heads": {"encoder": [WORTH] * 5, "decoder": [], "cross": [WORTH] * 5}}
BEAMS = {"lines": 9, "alpha": 0.6, "threads": 1}
BEAMS |= {"beams": [{"beam": b, "bleu": 20.0 + b / 10, "seconds": 1.0 * b, "length": 0.9} for b in (1, 2, 4)]}


def put_extras(made):
    """Records of every kind, as --collect and `layers --study` leave them."""
    for row in made.study.rows:
        for seed in made.study.seeds:
            part = {"start": heads(0.0, 0.0), "end": heads(10.0 * seed, 1.0 * seed)}
            put(made, row, seed, "softmax", {"threshold": 0.02, "lines": 7} | part)
        stack = {"kind": "bias", "first": -1, "values": [[-0.5, 0.0, None]] * 8}
        stacks = {"encoder": stack, "decoder": stack}
        put(made, row, made.study.seeds[0], "positions", {"positions": "t5", "stacks": stacks})
    put(made, made.study.rows[0], made.study.seeds[0], "heads", HEADS)
    put(made, made.study.rows[0], made.study.seeds[0], "beams", BEAMS)
    put(made, made.study.rows[0], made.study.seeds[0], "syntax", {"schema": 1})  # left by an earlier version
    (folder_of(made.root, made.study.name) / layer_table.FILE).write_text(layer_table.to_json(measured_table()))


SCORES = ("base", "S-unscaled", "S-dk256", "S-dk256-unscaled", "P-t5", "L-lstm")


@pytest.fixture(scope="module")
def asking(tmp_path_factory):
    files = [f"experiments/{name}.yaml" for name in ("scores", "positions", "layers")]
    known = all_rows(files)
    found = Generator(tmp_path_factory.mktemp("a"), [known[name] for name in SCORES], [1, 2])
    found.write_all({"L-lstm": 0.3})
    put_extras(found)
    return found


def test_softmaxes_by_d_k_stand_in_the_summary_and_its_json(asking):
    report = make("made", asking.root)
    end = {r.row: r for r in report.summary.analyses["softmax"].rows if (r.when, r.kind) == ("end", "all")}
    assert {(r.scores, r.d_k) for r in end.values()} == {(s, k) for s in ("scaled", "unscaled") for k in (8, 32)}
    one = end["S-dk256-unscaled"]
    assert one.alone and not end["P-t5"].alone and one.n == 2
    assert (one.saturated.mean, one.saturated.lowest, one.saturated.highest) == pytest.approx((0.15, 0.1, 0.2))
    assert one.gradient.mean == pytest.approx(0.15) and one.entropy.mean == pytest.approx(0.5)
    plain = json.loads(report.render("json"))["softmax"]
    assert plain["saturated below"] == 0.02 and "alone" not in plain["rows"][0]
    assert {row["when"] for row in plain["rows"]} == {"start", "end"}
    said = "scaled 15 % at d_k 8 and 15 % at d_k 32; unscaled 15 % at d_k 8 and 15 % at d_k 32"
    assert headline(report.summary)[0] == f"Softmaxes saturated at the end of the training: {said}."
    page = report.render("html")
    assert page.index('id="section-softmax"') < page.index('id="section-forest"'), "the study's own question first"
    places = [page.index(f'id="section-{key}"') for key in ("forest", "layers", "table", "costs")]
    assert places == sorted(places), "headline, pictures, table, the rest"
    pictures, numbers = (page[start:][: page[start:].index("</section>")] for start in (places[1], places[3]))
    assert "<table" not in pictures and pictures.count("<svg") == 4 and "<svg" not in numbers
    assert "A layer of self-attention takes longer than MyVeryLongL at every n" in headline(report.summary)[2]
    assert page.count(">wide unscaled keys</bdi> <small><code><bdi>S-dk256-unscaled<") > 2, "of lengths, too"
    alike = replace(report.summary.analyses["softmax"], rows=[end["base"]])
    assert softmax.sections(alike, report.summary) == [] == softmax.lead(alike, report.summary)
    every = report.summary.analyses["softmax"]
    none_alone = replace(every, rows=[replace(row, alone=False) for row in every.rows])
    assert softmax.sections(none_alone, report.summary) and softmax.lead(none_alone, report.summary) == []


def test_a_page_shows_what_its_rows_ask_for_and_nothing_else(asking, made):
    page = make("made", asking.root).render("html")
    for section in ("architecture", "layers", "softmax", "heads"):
        assert f'id="section-{section}"' in page
    assert re.search(r"Architecture of <bdi>[^<]*LSTM", page) and "box changed" in page
    assert "self-attention costs more than lstm from n = 300" in page
    plain = make("made", made.root).render("html")
    assert [f'id="section-{s}"' in plain for s in ("architecture", "layers", "softmax")] == [True, False, False]


def test_what_was_collected_travels_with_the_records(asking, tmp_path):
    report = make("made", asking.root)
    archive.pack(report.cells, tmp_path / "made.tar.xz", folder_of(asking.root, "made"))
    archive.unpack(tmp_path / "made.tar.xz", tmp_path / "there")
    there = make("made", tmp_path / "there")
    assert there.summary.analyses["softmax"] == report.summary.analyses["softmax"]


@pytest.mark.parametrize("file", ["table3", "layers", "scores", "modern", "positions", "stack"])
def test_the_boxes_of_an_architecture_hold_all_its_parameters(file):
    base = load_experiment("experiments/miniature.yaml", seed=1)
    for row in load_rows(f"experiments/{file}.yaml"):
        e = apply(base, row).scaled()
        sums = []
        for column in architecture.columns(e):
            inside = {id(box) for group in column.sublayers for box in group}
            boxes = [box for box in column.boxes if box.parameters[:1].isdigit()]
            counts = [(box, int(box.parameters.replace(",", ""))) for box in boxes]
            sums.append(sum(n * (e.model.N if id(box) in inside else 1) for box, n in counts))
        parts = count_parameters(e.model, e.data.vocab_size)
        assert sum(sums) == parts["total"] - parts["positions"], row.name
        ElementTree.fromstring(standalone_svg(architecture.architecture(e, row.name, base.scaled())))


@pytest.mark.parametrize("name", ["base", "prefix-flops"])
def test_a_narrow_page_shows_every_box_of_an_architecture_whole(name):
    base = load_experiment("experiments/miniature.yaml", seed=1)
    row = all_rows(["experiments/stack.yaml"])[name]
    e = apply(base, row).scaled()
    views = [[float(x) for x in view.split()] for view in architecture.narrow_views(e)]
    assert len(views) == (2 if name == "base" else 1)
    boxes = [
        [float(x) for x in found]
        for found in re.findall(
            r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)" rx="6"', architecture.architecture(e)
        )
    ]
    assert len(boxes) > 5
    for x, y, width, height in boxes:
        inside = [
            left <= x and x + width <= left + wide and top <= y and y + height <= top + high
            for left, top, wide, high in views
        ]
        assert inside.count(True) == 1, (x, y)


def test_what_a_row_changes_of_the_architecture_stands_out():
    base = load_experiment("experiments/miniature.yaml", seed=1)
    rows = all_rows(["experiments/positions.yaml"])
    assert "changed" not in architecture.architecture(base.scaled(), "base", base.scaled())
    t5 = architecture.architecture(apply(base, rows["P-t5"]).scaled(), "P-t5", base.scaled())
    assert t5.count("box changed") == 4 and "t5 positions" in t5, "both embeddings and both self-attentions"
    stack = all_rows(["experiments/stack.yaml"])["prefix-flops"]
    one = apply(base, stack).scaled()
    drawn = architecture.architecture(one, "prefix", base.scaled())
    assert "source, xa, then target, xb" in drawn and "sees the whole source" in drawn and "memory" not in drawn
    assert drawn.count("box changed") == 3, "one embedding, self-attention with a prefix, a wider feed-forward"
    assert "Cross-attention" in architecture.architecture(base.scaled(), "base", one)
    assert not architecture.drawn_alike(apply(base, rows["C-N2"]).scaled(), base.scaled())
    assert architecture.drawn_alike(apply(base, rows["D-eps0.0"]).scaled(), base.scaled())


def test_heads_and_beams_as_text_and_heads_as_a_file_of_its_own():
    text = to_text(head_ablation.head_blocks(HEADS))
    assert max(map(len, text.splitlines())) <= 80 and "4 more between them: report/heads.json" in text
    assert "encoder, layer 1, head 1" in text and "10 of 20 heads" in text and "[+0.1000, +0.3000]" in text
    harmful = {"nll": -0.2, "low": -0.3, "high": -0.1, "bleu": 1.0}
    assert "1 of 3 heads" in to_text(head_ablation.head_blocks(HEADS | {"heads": {"encoder": [[*WORTH, harmful]]}}))
    assert next(one[:3] for one in head_ablation.each(HEADS)) == ("encoder", 1, 1)
    assert max(map(len, to_text(head_ablation.beam_blocks(BEAMS)).splitlines())) <= 80
    root = ElementTree.fromstring(standalone_column("heads", head_ablation.head_pictures(HEADS)))
    assert len(root.findall("{*}svg")) == 2 and int(root.get("height")) > 2 * 100


def test_a_layer_of_the_users_own_is_what_stands_out_and_nothing_about_it_is_invented():
    base = Experiment()
    own = replace(base, model=replace(base.model, layer="mine.Mine"))
    ours, theirs = ({box.title: box for c in architecture.columns(e) for box in c.boxes} for e in (own, base))
    changed = sorted(title for title, box in ours.items() if theirs.get(title) != box)
    assert changed == ["Mine.Mine", "Mine.Mine, causal"], "cross-attention is base's"
    assert ours["Mine.Mine"].lines == () and ours["Mine.Mine"].parameters == ""


def test_a_file_of_its_own_has_its_colours_in_attributes():
    """Drawing programs, viewers and printers know neither style sheets nor CSS's variables: all was black."""
    picture = figure(
        20, 10, "t", tag("g", tag("rect", class_="box changed") + label(1, 2, "x", class_="tick"), class_="g3")
    )
    text = standalone_svg(picture)
    assert "var(" not in text and "class=" not in text and "<style" not in text
    root = ElementTree.fromstring(text)
    ground, rect, words = (root.find(path) for path in ("{*}rect", "{*}g/{*}rect", "{*}g/{*}text"))
    assert ground.get("fill") == "#fff" and ground.get("width") == "20"
    assert (rect.get("fill"), rect.get("stroke"), rect.get("stroke-width")) == ("#f6f8fa", "#c2185b", "2.4")
    assert words.get("fill") == "#57606a"
    dot = ElementTree.fromstring(standalone_svg(figure(1, 1, "t", tag("g", tag("circle", class_="dot"), class_="g2"))))
    assert dot.find("{*}g/{*}circle").get("fill") == "#6639ba", "that of its series"
    band = ElementTree.fromstring(standalone_svg(figure(1, 1, "t", tag("polygon", class_="band"))))
    assert band.find("{*}polygon").get("fill-opacity") == ".1", "what lies below it is seen"
    bar = ElementTree.fromstring(
        standalone_svg(figure(1, 1, "t", tag("g", tag("line", class_="interval"), class_="g2")))
    )
    assert bar.find("{*}g/{*}line").get("stroke") == "#6639ba"


def test_draw_writes_a_pdf(tmp_path, capsys):
    assert main(["draw", "--config", "experiments/miniature.yaml", "--to", str(tmp_path / "a.pdf")]) == 0
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF-")


def test_a_curve_enters_the_picture_where_it_crosses_its_top():
    band = [Point(0, 8.0, "", 7.0, 9.0), Point(10, 4.0, "", 3.0, 5.0), Point(20, 2.0, "", 1.0, 3.0)]
    assert below(band, 6.0) == [Point(5.0, 6.0, "", 5.0, 7.0), *band[1:]], "half-way between the first two validations"
    assert below(band, 9.0) == band
    assert below(band, 1.0) == []
    again = below([Point(0, 1.0), Point(10, 9.0), Point(20, 1.0)], 5.0)
    assert [(p.x, p.y) for p in again] == [(0, 1.0), (5.0, 5.0), (15.0, 5.0), (20, 1.0)], "it leaves and comes back"


def test_a_row_has_one_colour_in_every_picture_and_none_has_bases():
    many = [row for i, name in enumerate(["base", *"abcdefghijklmnopqrs"]) for row in rows(name, group=f"G{i}")]
    classes = row_classes(many)
    assert [name for name, class_ in classes.items() if class_ == BASE] == ["base"] and len(classes) == 20
    assert all(panel.classes[name] == classes[name] for panel in panels(many) for name in panel.rows)


def test_no_colour_of_a_row_is_one_of_a_verdict():
    sheet = (Path(lightning_tfm.report.__file__).parent / "templates" / "report.css").read_text()
    colours = re.findall(r"--(\w+): (#\w+)", sheet)
    rows = {value for name, value in colours if re.fullmatch(r"g\d", name)}
    verdicts = {value for name, value in colours if name in ("good", "bad", "found", "less")}
    assert len(rows) == 16 and len(verdicts) == 8 and not rows & verdicts
