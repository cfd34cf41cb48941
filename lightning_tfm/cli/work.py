"""`work`: join a study as a worker, on this machine or another one, and leave when nothing is left or at Ctrl-C.

Between the looks of `--seeds auto` it waits.
"""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.cli.study import add_options, join, make_crew
from lightning_tfm.config import Hardware, from_dict


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Work on a study that was started elsewhere.", experiment=False)
    parser.add_argument("study", help="name of the study")
    add_options(parser)
    parser.add_fields("trainer", Hardware)
    options = parse_plain(parser, argv)
    crew = make_crew(options, from_dict(Hardware, options["trainer"], "trainer"))
    states = join(options["study"], Path(options["out"]), crew)
    return 1 if any(state.state == "failed" for state in states) else 0
