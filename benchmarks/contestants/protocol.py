"""How a contestant talks to the referee: one JSON object a line, requests on standard input, answers on what was
standard output. Standard library only: it runs in every peer's environment.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


class Seat:
    """The contestant's end. `turns` yields the batches of each turn; the time until `done` is the turn's."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what a library prints must not mix with the answers
        self._began = (0.0, 0.0)

    def turns(self) -> Iterator[list[int]]:
        """Yields the batch numbers of one turn after another, until the referee says that it is over."""
        for line in sys.stdin:
            request = json.loads(line)
            if "batches" not in request:
                break
            self._began = (time.perf_counter(), time.process_time())
            yield request["batches"]

    def done(self, extra: dict[str, Any] | None = None) -> None:
        """Report the turn that was asked for."""
        seconds, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        self.say({"seconds": seconds, "cpu": cpu, "peak": peak_memory(), **(extra or {})})

    def say(self, answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=self._out, flush=True)


def peak_memory() -> float:
    """Highest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(make: dict[str, Callable[[Path, dict[str, Any]], tuple[Callable[[int], Any], dict[str, Any]]]]) -> None:
    """Play the game named on the command line: GAME FOLDER THREADS.

    `make[game](folder, sizes)` returns the function that works on one batch, by its number, and facts to report once.
    What that function returns is sent back, batch by batch.
    """
    game, folder, sizes = arguments()
    seat = Seat()
    work, facts = make[game](folder, sizes)
    seat.say(facts)
    for batches in seat.turns():
        answers = [work(i) for i in batches]
        seat.done({"answers": answers} if answers[0] is not None else None)


def arguments() -> tuple[str, Path, dict[str, Any]]:
    """Game, folder of the material, and its sizes; sets the number of threads."""
    game, folder, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    return game, folder, json.loads((folder / "sizes.json").read_text()) | {"threads": threads}
