"""`layers`: Table 1 of the paper, measured here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import make_parser, parse_plain, words
from lightning_tfm.cli.output import write_to
from lightning_tfm.config import Model
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural
from lightning_tfm.registry import LAYERS
from lightning_tfm.runs.environment import cpu_model
from lightning_tfm.study.study_file import check_exists

if TYPE_CHECKING:
    from lightning_tfm.measure.layer_table import LayerTable


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(
        verb,
        "Measure Table 1 of the paper: operations, seconds, chains of operators and path lengths of self-attention and "
        "of what may replace it. About twenty seconds on two cores.",
        experiment=False,
    )
    parser.add_argument(
        "--layer",
        action="extend",
        type=words,
        default=[],
        help="types to measure, yours by import path [all that ship]",
    )
    parser.add_argument("--d_model", type=int, default=512, help="width, 8 heads of an eighth each [512]")
    parser.add_argument("--kernel", type=int, default=3, help="positions that a convolution sees, k [3]")
    parser.add_argument("--neighbourhood", type=int, default=32, help="positions of restricted attention, r [32]")
    parser.add_argument("--longest", type=int, default=4096, help="positions of the longest text that is timed [4096]")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 leaves the choice to torch [0]")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="format of the output [text]")
    parser.add_argument("--figure", help="also write a figure to this SVG file")
    parser.add_argument("--study", help="also put it into the report of this study, in its folder")
    options = parse_plain(parser, argv)
    folder = check_exists(Path(options["out"]), options["study"]).parent if options["study"] else None
    for name, least in {"kernel": 1, "neighbourhood": 1, "threads": 0, "longest": 128}.items():
        if options[name] < least:
            raise UserError(f"--{name}={options[name]}: must be at least {least}")
    base = Model(kernel=options["kernel"], neighbourhood=options["neighbourhood"])
    d = options["d_model"]
    if d < 2 * base.h or d % (2 * base.h):
        raise UserError(f"--d_model={d}: must be divisible by {2 * base.h}: {base.h} heads, and two directions")

    table = measure_layers([replace(base, layer=name) for name in options["layer"] or LAYERS], d, options)
    from lightning_tfm.report.analyses import layer_table
    from lightning_tfm.report.render.text import to_text

    print(layer_table.to_json(table) if options["format"] == "json" else to_text(layer_table.blocks(table)), end="")
    if options["figure"]:
        write_to(Path(options["figure"]), layer_table.to_svg(table))
    if folder is not None:
        write_to(folder / layer_table.FILE, layer_table.to_json(table))
    return 0


def measure_layers(models: Sequence[Model], d: int, options: Mapping[str, int]) -> "LayerTable":
    """The table of these types at width d. `options`: longest, and threads (0: torch's choice)."""
    import torch

    from lightning_tfm.measure.layers import at_width, measure
    from lightning_tfm.model.layer_types import find_layer

    if options["threads"]:
        torch.set_num_threads(options["threads"])
    for model in models:
        find_layer(model.layer)
    machine = f"{cpu_model()}, {plural(torch.get_num_threads(), 'thread')}, torch {torch.__version__.partition('+')[0]}"
    return measure([at_width(model, d) for model in models], options["longest"], machine)
