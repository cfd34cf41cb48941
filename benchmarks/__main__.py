"""`python -m benchmarks GAME`: see `--help`."""

import argparse
import os
import sys
from pathlib import Path

from benchmarks import peers

RESULTS = Path(__file__).resolve().parent / "results"
GAMES = {
    "train": "tokens per second of training steps, against the peers",
    "decode": "sentences per second of beam search, against the peers, with the same weights",
    "startup": "seconds until commands answer",
    "queue": "what a run in a study costs beyond its own training, validation and scoring: 20 runs, one worker",
    "input": "sentences per second through the tokenizer into the store",
    "dashboard": "first paint, memory and polls of the dashboard at 1,000 runs or --runs",
    "ranks": "two processes of one thread against one process of two threads",
}


def main() -> int:
    if sys.argv[1:2] == ["gpu"]:
        from benchmarks import gpu

        return gpu.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    text = "; ".join(f"{name}: {what}" for name, what in GAMES.items())
    add = parser.add_argument
    add("game", choices=[*GAMES, "all", "peers"], help=f"{text}; all of them; peers: install them; gpu: see gpu -h")
    add("--config", choices=["small", "base", "miniature", "all"], default="all", help="for train [all]")
    add("--rounds", type=int, default=7, help="turns of each contestant [7]")
    add("--patience", type=int, default=3, help="times that a noisy turn is run at most [3]")
    add("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each contestant")
    add("--only", default="", help="names of contestants, joined by commas")
    add("--steps", type=int, default=1200, help="to train the weights for decode [1200]")
    add("--run-steps", type=int, default=500, help="of each run for queue [500]")
    add("--runs", type=int, default=1000, help="in the folder of dashboard [1000]")
    add("--root", type=Path, default=peers.folder().parent / "benchmarks", help="folder for material")
    add("--out", type=Path, default=RESULTS, help="folder for results [benchmarks/results]")
    options = parser.parse_args()
    if options.game == "peers":
        peers.install(list(peers.PEERS))
        return 0
    from benchmarks import games, queueing, watching  # torch takes long: `--help` and `peers` need none

    elsewhere = {"queue": queueing.queue, "dashboard": watching.dashboard}
    for name in GAMES if options.game == "all" else [options.game]:
        (elsewhere.get(name) or getattr(games, name))(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
