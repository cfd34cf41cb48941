"""`work`: join a study as a worker, on this machine or another, and leave when nothing is left or at Ctrl-C.

Between the looks of `--seeds auto` it waits.
"""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.cli.study_options import add_options, command_line
from lightning_tfm.config import Hardware, from_dict
from lightning_tfm.queue.resources import make_resources
from lightning_tfm.runs.outcome import STOPPED, say_how


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Work on a study that was started elsewhere.", experiment=False)
    parser.add_argument("study", help="name of the study")
    add_options(parser)
    parser.add_fields("trainer", Hardware)
    options = parse_plain(parser, argv)
    resources = make_resources(options, from_dict(Hardware, options["trainer"], "trainer"))

    from lightning_tfm.queue.launch import join

    try:
        states = join(options["study"], Path(options["out"]), resources)
    except (KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, KeyboardInterrupt) or stop.code in STOPPED:
            say_how(command_line(verb, argv))
        raise
    return 1 if any(state.state == "failed" for state in states) else 0
