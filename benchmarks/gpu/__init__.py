"""`python -m benchmarks gpu`: what a rented half hour on a GPU answers, the most decisive first.

    python -m benchmarks gpu [--stages first | facts,exact,…] [--minutes 30] [--out DIR]

Each stage is a process of its own with a limit; what it found is in DIR/gpu.json as soon as it is found, so that a
machine that is taken away leaves all but its last line. `--tiny` is the rehearsal: every stage at sizes for a CPU.
Needs neither Optuna nor W&B nor an installed package: PYTHONPATH and torch from 2.11 on are enough.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lightning_tfm.atomic_io import to_json, write_atomic

STAGES = {
    "facts": (30, "device, versions, commit"),
    "exact": (270, "masks, gradients, steps against a CPU and against themselves; kill, resume; attention's backends"),
    "today": (300, "target tokens a second of base, and the device's busy share: precision, masks, compiled"),
    "ceilings": (90, "rates of the nine products of base, of a copy, and the cost of a launch"),
    "trace": (60, "ten steps of base in bfloat16, for Perfetto"),
    "parts": (240, "base in bfloat16 with all kernels, and with each part left out"),
    "alone": (60, "each kernel beside its formula on the rows of base"),
    "small": (240, "the miniature by several processes on one device, by turns and under MPS"),
    "decoding": (90, "sentences a second of beam search"),
    "checkpoints": (60, "seconds and bytes of a checkpoint of base"),
    "miniature": (300, "steps a second of each of the paper's rows, and the time of the whole table"),
}  # fmt: skip
"""stage -> (most seconds, what it answers), in order"""
FIRST = "facts,exact,today"
"""what ten rented minutes must answer: does it start, is it right, how fast is base, does the host starve the device"""

TAIL = 20
"""lines of a failed stage's log that are printed"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__)
    add = parser.add_argument
    named = "; ".join(f"{name}: {what}" for name, (_, what) in STAGES.items())
    asked = f"first ({FIRST}: ten minutes) or names joined by commas, run in this order: {named}"
    add("--stages", default=",".join(STAGES), help=asked)
    add("--minutes", type=float, default=30.0, help="for all stages together [30]")
    add("--out", type=Path, default=Path("gpu"), help="folder for gpu.json, traces and logs [gpu]")
    add("--tiny", action="store_true", help="a rehearsal at sizes for a CPU")
    options = parser.parse_args(argv)
    names = (FIRST if options.stages == "first" else options.stages).split(",")
    if unknown := [name for name in names if name not in STAGES]:
        parser.error(f"unknown stages {', '.join(unknown)}: there are {', '.join(STAGES)}")
    options.out.mkdir(parents=True, exist_ok=True)
    return run(names, options.out, 60 * options.minutes, options.tiny)


def run(names: list[str], out: Path, seconds: float, tiny: bool) -> int:
    """Exit code 0 where every stage came to its end, else 1."""
    path, end = out / "gpu.json", time.monotonic() + seconds
    record: dict[str, Any] = {"tiny": tiny, "minutes": seconds / 60, "stages": {}}
    for name in names:
        left = end - time.monotonic()
        if left < 5:
            record["stages"][name] = {"ended": "not begun: the minutes are used up", "found": []}
        else:
            record["stages"][name] = run_stage(name, out, min(left, STAGES[name][0]), tiny)
        write_atomic(path, to_json(record))
        stage = record["stages"][name]
        print(f"{name}: {stage['ended']}, {len(stage['found'])} lines", flush=True)
        if stage["ended"] != "whole" and (log := out / f"{name}.log").exists():
            print(*log.read_text(errors="replace").splitlines()[-TAIL:], sep="\n", flush=True)
    return int(any(stage["ended"] != "whole" for stage in record["stages"].values()))


def run_stage(name: str, out: Path, seconds: float, tiny: bool) -> dict[str, Any]:
    """Run a stage; its lines are kept however it ends."""
    lines, log = out / f"{name}.jsonl", out / f"{name}.log"
    lines.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu.stages", name, str(out), *["--tiny"] * tiny]
    began = time.monotonic()
    with log.open("w") as output:
        try:
            environment = {**os.environ, "PYTHONUNBUFFERED": "1"} | ({"OMP_NUM_THREADS": "1"} if tiny else {})
            code = subprocess.run(command, stdout=output, stderr=output, env=environment, timeout=seconds).returncode
            ended = "whole" if code == 0 else f"exit code {code}, see {log.name}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {seconds:.0f} seconds"
    results = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    return {"ended": ended, "seconds": round(time.monotonic() - began, 1), "found": results}
