"""`inspect`: what each head of a trained run is worth, and what a wider beam buys; nothing is trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import to_json
from lightning_tfm.cli.arguments import make_parser, parse_plain, words
from lightning_tfm.cli.output import write_to
from lightning_tfm.errors import UserError
from lightning_tfm.runs.folder import RunFolder, experiment_of, find_trained
from lightning_tfm.runs.outcome import say
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import file_of, load_as
from lightning_tfm.sums import with_checksum

WIDTHS = ("1", "2", "4", "8", "16")


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(
        verb,
        "Ablate one attention head after another and score the dev set, and score it with several beam sizes. Records "
        "and pictures go into the run's folder, report/, and into its study's report.",
        experiment=False,
    )
    parser.add_argument("run", help="a run's directory, the start of its name, or a study: base at its first seed")
    parser.add_argument("--what", action="extend", type=words, default=[], help="heads, beams or both [both]")
    parser.add_argument("--beams", action="extend", type=words, default=[], help="widths of the beam [1,2,4,8,16]")
    parser.add_argument("--lines", type=int, default=0, help="lines of the dev set, from the first; 0: all")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0 leaves the choice to torch")
    options = parse_plain(parser, argv)
    wanted = options["what"] or ["heads", "beams"]
    for word in wanted:
        if word not in ("heads", "beams"):
            raise UserError(f"--what={word}: valid: beams, heads")
    if options["beams"] and "beams" not in wanted:
        raise UserError(f"--beams={','.join(options['beams'])}: belongs to --what beams, not to --what heads")
    for name in ("lines", "threads"):
        if options[name] < 0:
            raise UserError(f"--{name}={options[name]}: must not be negative")
    widths = [_width(word) for text in options["beams"] or WIDTHS for word in text.split(",")]
    folder = _run_folder(options["run"], Path(options["out"]))
    _inspect(folder, wanted, widths, options)
    return 0


def _width(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise UserError(f"--beams={text}: expected whole numbers above 0")
    return int(text)


def _run_folder(name: str, root: Path) -> RunFolder:
    """Raises UserError if there is no such finished run."""
    if name == Path(name).name and not name.startswith(".") and file_of(root, name).is_file():
        study = load_as(Ablation, root, name)
        base = next((row for row in study.rows if row.name == study.base_row), study.rows[0])
        folders = [RunFolder(root, study.cell(base, seed).training_hash) for seed in sorted(study.seeds)]
        finished = next((folder for folder in folders if folder.finished()), None)
        if finished is None:
            raise UserError(f"study '{name}': no run of {base.name} is finished")
        return finished
    return find_trained(name, root)


def _inspect(folder: RunFolder, wanted: Sequence[str], widths: Sequence[int], options: dict[str, Any]) -> None:
    import torch

    from lightning_tfm.inference import head_ablation
    from lightning_tfm.inference.load import Trained
    from lightning_tfm.report.analyses import head_ablation as pages
    from lightning_tfm.report.charts.svg import standalone_column
    from lightning_tfm.report.render.text import to_text

    if options["threads"]:
        torch.set_num_threads(options["threads"])
    experiment = experiment_of(folder)
    if not experiment.data.translated:
        raise UserError(
            f"{folder.path.name}: data.corpus={experiment.data.corpus} has no source, and heads and beams are "
            "inspected by translations"
        )
    trained = Trained.open(folder, experiment)
    own = trained.module.experiment
    how, split = own.evaluation, trained.prepared.split(own.data.dev)
    text = split.take(range(min(options["lines"] or len(split), len(split))))

    for what in dict.fromkeys(wanted):
        if what == "heads":
            record = head_ablation.heads(trained, text, how, say)
            print(to_text(pages.head_blocks(record)))
            write_to(folder.path / "report" / "heads.svg", standalone_column(what, pages.head_pictures(record)))
        else:
            record = head_ablation.beams(trained, text, how, widths, say)
            print(to_text(pages.beam_blocks(record)))
        write_to(folder.path / "report" / f"{what}.json", to_json(with_checksum(record)).decode())
