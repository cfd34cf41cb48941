"""`demo`: one tiny run, a few translations, a report; repeated, it shows what it has."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_tfm.cli.arguments import make_parser, parse, parse_plain, progress_of
from lightning_tfm.cli.output import write_page
from lightning_tfm.cli.study_options import add_options, remember
from lightning_tfm.cli.train.sweep import table_from
from lightning_tfm.metrics import in_print
from lightning_tfm.queue.resources import make_resources
from lightning_tfm.runs.folder import RunFolder, experiment_of
from lightning_tfm.study.command import with_out
from lightning_tfm.study.rows import find_row
from lightning_tfm.study.study import Ablation
from lightning_tfm.study.study_file import save

if TYPE_CHECKING:
    from lightning_tfm.study.cell import Cell

NAME = "demo"
EXPERIMENT = "experiments/demo.yaml"
SHOWN = (4, 5, 6)
"""words of the sentences that are translated: the first of the dev text with as many"""
BEGIN = """\
A one-layer Transformer learns a synthetic language from 2,700 sentence pairs
in 1,000 steps: half a minute on two cores. Ctrl-C stops it at any moment.
"""
NEXT = """
Next:
  your own sentences
    echo "{source}" | lightning-tfm translate {run}
  Table 3 in miniature
    lightning-tfm sweep sweeps/table3.yaml
  a single row
    lightning-tfm fit --config experiments/miniature.yaml --row A-h1
  in the browser
    {dashboard}
  all commands
    lightning-tfm --help"""
"""no line is broken on an 80-column terminal: a name over two lines cannot be copied"""


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Train a tiny model, translate with it, and write its report.", experiment=False)
    out = parse_plain(parser, argv)["out"]
    began = time.monotonic()
    print(BEGIN, file=sys.stderr)
    try:
        return _demo(out, began)
    except (KeyboardInterrupt, SystemExit):
        print(f"Stopped. `{with_out('lightning-tfm demo', out)}` resumes from the last checkpoint.", file=sys.stderr)
        raise


def _demo(out: str, began: float) -> int:
    own = make_parser(NAME, "")
    add_options(own)
    own_options = ["--workers", "1", "--trainer.threads", "1"]  # more threads slow a model this small down
    settings = parse(own, ["--config", EXPERIMENT, *own_options, "--out", out])
    resources = make_resources(settings.verb, settings.hardware)
    study = table_from(settings, NAME, [find_row(settings.rows, "base")], [settings.base.training.seed])

    from lightning_tfm.queue.prepare_data_rows import on_this_machine

    study = save(on_this_machine(study, settings.out, progress_of(NAME)), settings.out)
    cells = study.cells()
    remember(settings.verb, resources.hardware, settings.out, NAME)

    from lightning_tfm.cli.show.report import collect_study
    from lightning_tfm.queue.launch import work
    from lightning_tfm.report.records import read_cells, with_sentences
    from lightning_tfm.report.study_report import report_of, write_table

    states = work(study, cells, settings.out, resources, start=True)
    if any(state.state == "failed" for state in states or ()):
        print(f"the run failed: {with_out('lightning-tfm runs list', out)} says why", file=sys.stderr)
        return 1
    source = _show(study, cells[0], settings.out)
    collect_study(NAME, settings.out, lambda line: None)
    records = read_cells(study, settings.out)
    write_table(records)
    print(f"\nIn {time.monotonic() - began:.0f} seconds. Report with curves, translations and attention:")
    reported = write_page(NAME, settings.out, lambda: report_of(with_sentences(records)))
    folder = RunFolder(settings.out, cells[0].training_hash).path
    dashboard = with_out("lightning-tfm dashboard", out)
    print(NEXT.format(source=source, run=folder.name if out == "results" else folder, dashboard=dashboard))
    return 0 if reported else 1


def _show(study: Ablation, cell: "Cell", root: Path) -> str:
    """Print what the run learned and three translations of dev sentences; the shortest of these sentences."""
    from lightning_tfm.inference.load import Trained

    folder = RunFolder(root, cell.training_hash)
    result = folder.read_result()
    assert result is not None, "the run is finished"
    print(f"dev {in_print(result.scores['dev'], 0)}; {result.parameters.total:,} parameters\n")
    trained = Trained.open(folder, experiment_of(folder))
    text = trained.prepared.split(study.base.data.dev)
    pairs = list(zip(text.source_text(), text.target_text(), strict=True))
    chosen = [next(pair for pair in pairs if len(pair[0].split()) == words) for words in SHOWN]
    translations = trained.translate([source for source, _ in chosen])
    for (source, reference), (best, *_) in zip(chosen, translations, strict=True):
        print(f"source       {source}\ntranslation  {best.text}\nreference    {reference}\n")
    return chosen[0][0]
