"""`wandb replay STUDY`: send those records of a study, or of one run, to W&B that are not there yet."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural

if TYPE_CHECKING:
    from lightning_tfm.queue.wandb_mirror import Verdicts
    from lightning_tfm.report.study_report import Report
    from lightning_tfm.study.cell import Cell


MODES = ("offline", "online")


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Send a study's records to W&B: wandb replay STUDY.", experiment=False)
    parser.add_action("replay")
    parser.add_argument("study", help="name of the study under <out>/studies, or folder of a run")
    text = "where to send them [as WANDB_MODE, else online]"
    parser.add_argument("--mode", choices=MODES, default=os.environ.get("WANDB_MODE", "online"), help=text)
    parser.add_argument("--storage", default="", help="where its queue is [as the study was started]")
    options = parse_plain(parser, argv)
    if options["mode"] not in MODES:
        raise UserError(f"WANDB_MODE={options['mode']}: nothing would be sent; give --mode offline or --mode online")

    from lightning_tfm.queue.wandb_mirror import replay
    from lightning_tfm.study.study_file import folder_of

    root, name = Path(options["out"]), options["study"]
    if (Path(name) / "identity.json").is_file():
        root, cells, name = Path(name).resolve().parents[1], [_cell_of(Path(name))], "fit"
    else:
        from lightning_tfm.queue.studies import open_queue

        states = open_queue(root, name, options["storage"]).states()
        cells = [run for state in states for run in state.cell.runs]
    folder = folder_of(root, name)
    replay(folder, options["mode"], name, root, cells, _verdicts(root, name))
    print(f"{plural(len(cells), 'run')} of '{options['study']}' checked: {folder / 'wandb'}")
    return 0


def _verdicts(root: Path, name: str) -> "Verdicts | None":
    """Of a table that is defined here."""
    from lightning_tfm.report.study_report import make
    from lightning_tfm.study.study import Ablation
    from lightning_tfm.study.study_file import file_of, load

    if not file_of(root, name).is_file() or not isinstance(load(root, name), Ablation):
        return None
    return verdicts_of(make(name, root))


def verdicts_of(made: "Report") -> "Verdicts":
    """As a table, with the main figure, and with the page without any line of the corpus."""
    from lightning_tfm.report.charts.forest_picture import wide
    from lightning_tfm.report.charts.study_forest import forest_of
    from lightning_tfm.report.charts.svg import standalone_svg
    from lightning_tfm.report.tables import main_table

    figure = wide(forest_of(made.summary), titled=True)
    narrower = "<style>svg {max-width: 100%; height: auto}</style>"  # in W&B's panels, which cut what is wider
    pages = {"differences": narrower + standalone_svg(figure)} if figure else {}
    lines = main_table.table_lines(made.summary)
    return list(lines[0]), [list(line.values()) for line in lines], pages | {"report": made.render("html", texts=False)}


def _cell_of(run: Path) -> "Cell":
    """A run that `fit` trained, outside of any study."""
    from lightning_tfm.config import training_hash
    from lightning_tfm.runs.folder import RunFolder, read_json
    from lightning_tfm.study.cell import Cell

    identity, experiment = read_json(run / "identity.json"), read_json(run / "experiment.json")
    if identity is None or experiment is None:
        raise UserError(f"{run}: identity.json or experiment.json is missing: not a run")
    called = RunFolder(run.parent.parent, run.name).read_called()
    return Cell(called.row if called else "experiment", experiment["training"]["seed"], training_hash(identity), 1.0)
