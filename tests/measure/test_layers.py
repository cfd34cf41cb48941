"""Table 1 of the paper, measured: each measure against cases whose answer is known, and how the table reads."""

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from lightning_tfm.cli.main import main
from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.measure import layers
from lightning_tfm.measure.layer_table import PAPER, Exponent, LayerMeasures, LayerTable, crossing
from lightning_tfm.measure.layers import (
    Chain,
    at_width,
    exponents,
    fit_exponents,
    layers_until_all_see_all,
    longest_chain,
    operations,
)
from lightning_tfm.registry import LAYERS
from lightning_tfm.report.analyses.layer_table import blocks, dearer_from, read_layer_table, to_json, to_svg
from lightning_tfm.report.render.text import to_text

NARROW = {"d_model": 16, "h": 2, "d_k": 8, "d_v": 8, "neighbourhood": 4}


@pytest.fixture
def small(monkeypatch):
    """Fewer and smaller sizes to fit to."""
    monkeypatch.setattr(layers, "LENGTHS_COUNTED", (64, 128))
    monkeypatch.setattr(layers, "WIDTHS_COUNTED", (16, 32))
    monkeypatch.setattr(layers, "SHAPES", (8, 16))


def test_a_power_law_is_found_exactly_and_a_sum_with_an_interval():
    sizes = [[n, d] for n in (8, 16, 64) for d in (4, 32, 128)]
    n, d = fit_exponents(sizes, [3 * n**2 * d for n, d in sizes])
    assert (n.value, d.value) == pytest.approx((2, 1)) and n.high - n.low < 1e-9
    n, d = fit_exponents(sizes, [n**2 * d + n * d**2 for n, d in sizes])
    assert 1 < n.low < n.value < n.high < 2 and 1 < d.value < 2


@pytest.mark.parametrize(
    ("layer", "orders"),
    [
        ("attention", {"n": 2, "d": 1}),
        ("convolution", {"n": 1, "d": 2, "k": 1}),
        ("separable", {"n": 1, "d": 1, "k": 1}),
        ("restricted", {"n": 1, "d": 1, "r": 1}),
    ],
)
def test_orders_between_positions_are_the_papers(layer, orders, small):
    """Restricted attention looks at 2r - 1 keys, which is not quite linear in r."""
    between, _ = exponents(Model(layer=layer))
    assert {name: e.value for name, e in between.items()} == pytest.approx(
        orders, abs=0.05 if layer == "restricted" else 1e-6
    )


def test_operations_of_a_recurrent_layer_are_scaled():
    between, whole = operations(Model(layer="lstm", d_model=32), 640)
    assert whole == 640 * 2 * (2 * 4 * 16 * (32 + 16) + 32 * 32) and between == whole - 640 * 2 * 32 * 32


def test_a_chain_counts_what_waits():
    x = torch.ones(3, 3)
    with Chain() as chain:
        y = (x @ x).relu().t()
        x @ x + 1  # beside it
        torch.cat((y, y)).exp()
    assert max(chain.depth.values()) == 3


def test_chains_grow_with_the_length_where_cells_wait_for_each_other():
    found = {layer: [longest_chain(Model(layer=layer, **NARROW), n) for n in (16, 24, 32)] for layer in PAPER}
    for layer in ("lstm", "gru"):
        a, b, c = found.pop(layer)
        assert c - b == b - a > 8
    assert all(a == b == c for a, b, c in found.values()), found


def test_layers_until_all_see_all():
    def found(layer: str, n: int) -> int | None:
        return layers_until_all_see_all(Model(layer=layer, **NARROW), n)

    for n in (16, 23):
        assert [found(layer, n) for layer in ("attention", "lstm", "gru")] == [1, 1, 1]
        assert found("convolution", n) == found("separable", n) == n - 1
        assert found("dilated", n) == math.ceil(math.log2(n))
        assert found("restricted", n) == n - 1  # with r = 4 one position onward, two back


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({1: 1, 2: 4, 4: 16}, {1: 2, 2: 4, 4: 8}, 2),
        ({2: 1, 8: 16}, {2: 2, 8: 8}, 4),
        ({1: 1, 2: 2}, {1: 2, 2: 3}, None),
        ({1: 3, 2: 4}, {1: 2, 2: 3}, 0),
        ({1: 3, 2: 1, 4: 9}, {1: 2, 2: 2, 4: 3}, 2.5),
        ({1: 3, 2: 1}, {1: 2, 2: 3}, None),
    ],
)
def test_a_crossing_lies_between_two_lengths(one, other, expected):
    assert crossing(one, other) == pytest.approx(expected)


def test_a_crossing_of_operations_is_exact():
    d, lengths = 512, (64, 256, 512, 1024, 4096)
    attention = {n: 8 * n * d**2 + 4 * n**2 * d for n in lengths}
    assert crossing(attention, {n: 14 * n * d**2 for n in lengths}) == pytest.approx(1.5 * d)


@pytest.mark.parametrize(("layer", "between", "whole"), [("gru", 2.25, 0.75), ("lstm", 3.0, 1.5)])
def test_the_crossings_of_the_documents_are_those_of_whole_layers_and_between_positions(layer, between, whole):
    """the paper's n = d compares orders of what happens between positions."""
    d, lengths = 64, (16, 32, 64, 128, 256)
    ours, other = ({n: operations(at_width(Model(layer=name), d), n) for n in lengths} for name in ("attention", layer))
    found = [crossing(*({n: float(c[i]) for n, c in counts.items()} for counts in (ours, other))) for i in (0, 1)]
    assert found == pytest.approx([between * d, whole * d])


def test_the_text_says_which_operations_and_what_is_the_papers_table():
    text = " ".join(to_text(blocks(table()), 80).split())
    assert "95 %" not in text and "± misfit" in text and "of whole layers" in text
    assert "the paper's n = d compares n² d with n d²: between positions" in text
    assert "n / k *" in text and "*: the paper's text; its table has log_k n" in text
    assert "A product over n keys is one operator" in text


def table() -> LayerTable:
    """Made up, its numbers as wide as they come."""
    exact, rough = Exponent(1.0, 1.0, 1.0), Exponent(1.87, 1.7, 2.04)
    lengths = [64 << i for i in range(7)]
    rows = []
    for i, layer in enumerate((*LAYERS, "my_module.MyVeryLongLayer")):
        names = ("n", "d", "k") if i > 3 else ("n", "d")
        rows.append(
            LayerMeasures(
                layer,
                10**6,
                dict.fromkeys(names, exact),
                dict.fromkeys(names, rough),
                {n: (n * n if layer == "attention" else 300 * n) * 10**6 for n in lengths},
                {n: n ** (2 if layer == "attention" else 1) / 10**4 for n in lengths},
                {16: 129, 64: 513, 256: 2049},
                {16: 1, 64: 13, 256: None},
            )
        )
    return LayerTable(512, 8, 3, 32, "AMD EPYC 7763, 2 threads, torch 2.13.0", 61.0, rows)


def test_a_sentence_says_from_which_length_self_attention_takes_longer():
    seconds = {"attention": (1, 4), "gru": (2, 3), "dilated": (1.5, 1.6), "restricted": (0.5, 2), "lstm": (9, 9)}
    rows = {row.layer: row for row in table().rows}
    made = [replace(rows[layer], seconds=dict(zip((64, 128), cost, strict=True))) for layer, cost in seconds.items()]
    said = "than restricted at every n measured, than gru from n = 107, than lstm at no n measured."
    assert dearer_from(replace(table(), rows=made)) == f"A layer of self-attention takes longer {said}"
    assert dearer_from(replace(table(), rows=made[1:])) == dearer_from(replace(table(), rows=made[:1])) == ""


def test_the_text_fits_a_terminal_and_says_what_is_not_measured():
    text = to_text(blocks(table()), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "MyVeryLongL" in text and "2049" in text and "n1.87±.17" in text
    assert text.count("below 64") == 7 and text.count(" 300") == 7 and "-" in text


def test_json_and_figure_hold_every_row(tmp_path):
    plain = json.loads(to_json(table()))
    assert [row["layer"] for row in plain["rows"]][:2] == ["attention", "restricted"]
    assert plain["rows"][2]["paper"]["operations"] == "n d²" and plain["rows"][-1]["paper"]["operations"] == ""
    root = ElementTree.fromstring(to_svg(table()))
    assert len(root.findall(".//{*}polyline")) == 16 and "".join(root.itertext()).count("n = d = 512") == 2
    (tmp_path / "layers.json").write_text(to_json(table()))
    assert read_layer_table(tmp_path / "layers.json") == table() and read_layer_table(tmp_path / "none.json") is None
    (tmp_path / "layers.json").write_text("{}")
    with pytest.raises(UserError, match="lightning-tfm layers makes it again"):
        read_layer_table(tmp_path / "layers.json")


def test_the_verb_measures_and_writes(tmp_path, capsys, small):
    figure = tmp_path / "layers.svg"
    argv = ["--layer", "[attention, separable]", "--d_model", "16", "--longest", "128", "--figure", str(figure)]
    assert main(["layers", *argv, "--threads", "1"]) == 0
    assert "separable" in capsys.readouterr().out and ElementTree.parse(figure)
