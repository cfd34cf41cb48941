"""`resume`: resume a study by its name: study.json says what it is, workers.json who worked on it."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain, progress_of
from lightning_tfm.cli.study_options import add_options, check_precisions, check_start, go_back, resumable
from lightning_tfm.cli.train.carry_out import carry_out
from lightning_tfm.config import Hardware, from_dict
from lightning_tfm.errors import UserError
from lightning_tfm.queue.resources import make_resources
from lightning_tfm.study.settings import SECTIONS
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import check_exists, folder_of, load, save

FIXED = "name seeds first-seeds max-seeds only tune tune-seeds sampler trials scales config rows row seed".split()
"""options that define a study"""


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Resume a study as it was started: resume STUDY. What is finished stays finished."
    parser = make_parser(verb, about, experiment=False)
    parser.add_argument("study", help="name of the study under <out>/studies")
    parser.add_argument("--max-runs", type=int, help="with --seeds auto: stop before more runs than this in all")
    parser.add_argument("--reference", metavar="ROW", help="end with the differences to this row, too")
    add_options(parser)
    parser.add_fields("trainer", Hardware)
    for token in argv:
        key = token.partition("=")[0].removeprefix("--")
        section = key.partition(".")[0]
        if token.startswith("--") and (key in FIXED or (section in SECTIONS and section != "trainer")):
            raise UserError(
                f"resume {token}: --{key} belongs to what the study is, which stays as it was started; workers, "
                "storage, launcher and --trainer.… may be given. To add rows, seeds or trials, type the command that "
                "started it with them; for another experiment, give it its own name with --name"
            )
    options = parse_plain(parser, argv)
    root, name = Path(options["out"]), options["study"]
    check_exists(root, name)
    root = root.resolve()
    go_back(parser, root, name)
    options = parse_plain(parser, argv)
    study = load(root, name)
    resources = make_resources(options, from_dict(Hardware, options["trainer"], "trainer"))
    study.hardware_of(resources.hardware)
    check_start(resources, folder_of(root, name))
    if isinstance(study, Ablation):
        precision = study.base.training.precision
        check_precisions((row.change.get("training.precision", precision) for row in study.rows), resources)
    with resumable(root, name, verb, argv, jobs=resources.cluster is not None):
        from lightning_tfm.queue.prepare_data_rows import on_this_machine
        from lightning_tfm.queue.studies import has_queue, open_queue

        study = save(on_this_machine(study, root, progress_of(name)), root)
        begun = has_queue(root, name, resources.storage)  # its queue holds what was asked for, not every row and seed
        cells = [state.cell for state in open_queue(root, name, resources.storage).states()] if begun else study.cells()
        return carry_out(study, root, resources, options, cells)
