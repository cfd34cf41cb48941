"""What a study costs beyond the own work of its runs, and where that time goes."""

import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks import machine, report
from benchmarks.contest import ROOT

LENGTH = 30.0
"""seconds of a run for which the share is stated"""
SWEEP = """name: queue
method: grid
parameters:
  row: {values: [base]}
  seed: {values: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}
command: [lightning-tfm, fit, --config, experiments/miniature.yaml, "${args}"]
"""
FEW = ["--data.pairs", "1200", "--evaluation.beam", "1", "--evaluation.extra_len", "1"]


@dataclass(frozen=True)
class Costs:
    """Seconds of one study beyond the own work of its runs, by place. Their sum is wall time less own work."""

    before: float
    """from the command to the first run: imports, data"""
    between: float
    """from the end of a run to the begin of the next: its process, the queue"""
    within: float
    """from the begin to the end of the runs, what their records do not count as work: data opened, model built"""
    after: float
    """from the last run to the end of the command: table, report"""
    own: float
    runs: int

    @property
    def all(self) -> float:
        return self.before + self.between + self.within + self.after


def queue(options: Namespace) -> None:
    """The miniature's base at 20 seeds, one worker, `--run-steps` steps each."""
    with tempfile.TemporaryDirectory() as root:
        costs = _measure(Path(root), options.run_steps)
    per_run, share = costs.all / costs.runs, costs.all / costs.runs / LENGTH
    body = [[name, f"{getattr(costs, name):.2f}"] for name in ("own", "before", "between", "within", "after", "all")]
    each = (costs.between + costs.within) / costs.runs
    notes = [
        f"{costs.runs} runs of {costs.own / costs.runs:.1f} s each, one worker",
        f"each beyond its own training, validation and scoring: {each:.2f} s (the target is 0.3)",
        f"with begin and end of the study shared out: {per_run:.2f} s, {share:.1%} at {LENGTH:g} s a run (target 5 %)",
    ]
    text = "\n".join(["## Queue", "", *report._table(["seconds", "s"], body), "", *(f"- {note}" for note in notes), ""])
    record = {"machine": machine.facts(1), "runs": costs.runs, "share": share, "per_run": per_run, "each": each}
    record |= {name: getattr(costs, name) for name in ("own", "before", "between", "within", "after")}
    report.write("queue", text, record, options.out)


def _measure(root: Path, steps: int) -> Costs:
    (root / "queue.yaml").write_text(SWEEP)
    command = [sys.executable, "-m", "lightning_tfm.cli.main", "sweep", str(root / "queue.yaml"), "--workers", "1"]
    command += [
        "--out",
        str(root),
        "--training.steps",
        str(steps),
        "--training.warmup",
        "1",
        "--trainer.threads",
        "1",
        *FEW,
    ]
    began = time.time()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    ended = time.time()
    results = [json.loads(path.read_bytes()) for path in root.glob("runs/*/result.json")]
    results.sort(key=lambda result: result["started"])
    own = sum(result["seconds"]["total"] for result in results)
    working = sum(result["ended"] - result["started"] for result in results)
    between = sum(b["started"] - a["ended"] for a, b in pairwise(results))
    first, last = results[0]["started"], results[-1]["ended"]
    return Costs(first - began, between, working - own, ended - last, own, len(results))
