"""`work`: join a study as a worker, on this machine or another one, and leave when nothing is left or at Ctrl-C.

Between the looks of `--seeds auto` it waits.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import documentation, make_parser, parse_plain
from lightning_tfm.cli.study import add_options, make_resources
from lightning_tfm.config import Hardware, from_dict


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Work on a study that was started elsewhere.", experiment=False)
    parser.add_argument("study", type=str, help="name of the study")
    add_options(parser)
    for f in dataclasses.fields(Hardware):
        text = documentation().get((Hardware.__name__, f.name), "")
        parser.add_argument(f"--trainer.{f.name}", type=f.type, default=f.default, help=text.replace("%", "%%"))
    options = parse_plain(parser, argv)
    resources = make_resources(options, from_dict(Hardware, options["trainer"], "trainer"))

    from lightning_tfm.queue.join import join

    states = join(options["study"], Path(options["out"]), resources)
    return 1 if any(state.state == "failed" for state in states) else 0
