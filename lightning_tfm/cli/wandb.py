"""`wandb replay STUDY`: send the records of a study to W&B, as far as they are not there yet."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.errors import UserError


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Send a study's records to W&B: wandb replay STUDY.", experiment=False)
    parser.add_argument("action", type=str, help="replay")
    parser.add_argument("study", type=str, help="name of the study under <out>/studies")
    parser.add_argument("--mode", type=Literal["offline", "online"], default="online", help="where to")
    parser.add_argument("--storage", type=str, default="", help="where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    if options["action"] != "replay":
        raise UserError(f"wandb {options['action']}: did you mean 'replay'?")

    from lightning_tfm.cli.status import open_queue
    from lightning_tfm.study.definition import file_of
    from lightning_tfm.study.wandb_mirror import Mirror

    root, name = Path(options["out"]), options["study"]
    folder = file_of(root, name).parent
    cells = [state.cell for state in open_queue(root, name, options["storage"]).states()]
    mirror = Mirror(folder, options["mode"], name)
    mirror.look(root, cells)
    mirror.close()
    mirror.table(folder / "table.csv")
    print(f"{len(cells)} runs of study '{name}' looked at: {folder / 'wandb'}")
    return 0
