"""The referee: contestants in processes of their own, turn by turn A B C A B C, medians and ratios.

A turn is repeated (`patience` times at most) when other processes of the machine, or its host, took more than `NOISE`
of a core meanwhile; turns that stayed noisy are counted in the table.
"""

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NOISE = 0.12
TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Entry:
    """Who takes part: a module of benchmarks.contestants, the game it plays, the Python that runs it.

    `copies` of it work at once, each on its own batches; the turn ends with the last of them.
    """

    name: str
    module: str
    game: str
    python: Path = Path(sys.executable)
    threads: int = 0
    """0: as many as the game gives each contestant"""
    copies: int = 1


@dataclass
class Player:
    """A running contestant and its turns."""

    entry: Entry
    processes: list[subprocess.Popen[str]]
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    noisy: int = 0
    peak: float = 0.0
    answers: list[Any] = field(default_factory=list)

    def hear(self) -> dict[str, Any]:
        """One answer of all copies: the longest time, what they used together, the rest from the first."""
        answers = []
        for process in self.processes:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{self.entry.name} ended with exit code {process.wait()}; see above")
            answers.append(json.loads(line))
        if "seconds" in answers[0]:
            longest = max(answer["seconds"] for answer in answers)
            cpu, peak = (sum(answer[key] for answer in answers) for key in ("cpu", "peak"))
            return answers[0] | {"seconds": longest, "cpu": cpu, "peak": peak}
        return answers[0]

    def turn(self, batches: list[int]) -> dict[str, Any]:
        for process in self.processes:
            print(json.dumps({"batches": batches}), file=process.stdin, flush=True)
        return self.hear()

    def end(self) -> None:
        for process in self.processes:
            process.stdin.close()
            process.wait()

    def median(self) -> float:
        return statistics.median(self.seconds)


def seat(entry: Entry, folder: Path, threads: int) -> Player:
    """Start a contestant; it is ready when its first line has come."""
    threads = entry.threads or threads
    command = [str(entry.python), "-m", f"benchmarks.contestants.{entry.module}", entry.game, str(folder), str(threads)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}

    def start() -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)

    return Player(entry, [start() for _ in range(entry.copies)])


def play(
    entries: list[Entry],
    folder: Path,
    turn: list[int],
    rounds: int,
    threads: int,
    patience: int,
    warm: list[int] | None = None,
) -> list[Player]:
    """Warm up with one turn each (or `warm`), then `rounds` turns each, interleaved. Who fails is left out."""
    players = []
    for entry in entries:
        player = seat(entry, folder, threads)
        try:
            player.facts = player.hear()
            player.turn(warm or turn)
        except (RuntimeError, json.JSONDecodeError) as error:
            print(f"left out: {error}", file=sys.stderr)
            for process in player.processes:
                process.kill()
            continue
        players.append(player)
    for _ in range(rounds):
        for player in players:
            _measure(player, turn, patience)
    for player in players:
        player.end()
    return players


def _measure(player: Player, turn: list[int], patience: int) -> None:
    for _ in range(patience):
        before = _busy()
        answer = player.turn(turn)
        others = (_busy() - before - answer["cpu"]) / answer["seconds"]
        if others <= NOISE:
            break
    else:
        player.noisy += 1
    player.seconds.append(answer["seconds"])
    player.peak = answer["peak"]
    player.answers = answer.get("answers", [])


def _busy() -> float:
    """Seconds that all cores together have worked, or were taken by the host, since the machine started."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def rows(players: list[Player], units: float, base: str) -> list[dict[str, Any]]:
    """What the table shows: units per second (median, least, most) and the ratio of medians to `base`."""
    by_name = {player.entry.name: player for player in players}
    reference = by_name[base].median() if base in by_name else None
    return [
        {
            "name": name,
            "median": units * player.entry.copies / player.median(),
            "least": units * player.entry.copies / max(player.seconds),
            "most": units * player.entry.copies / min(player.seconds),
            "ratio": reference * player.entry.copies / player.median() if reference else None,
            "peak_MiB": round(player.peak),
            "noisy": player.noisy,
            "turns": len(player.seconds),
            "seconds": [round(x, 4) for x in player.seconds],
            "parameters": player.facts.get("parameters"),
        }
        for name, player in by_name.items()
    ]
