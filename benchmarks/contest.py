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
    """Who takes part: a module of benchmarks.contestants, the game it plays, the Python that runs it."""

    name: str
    module: str
    game: str
    python: Path = Path(sys.executable)


@dataclass
class Player:
    """A running contestant and its turns."""

    entry: Entry
    process: subprocess.Popen[str]
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    noisy: int = 0
    peak: float = 0.0
    answers: list[Any] = field(default_factory=list)

    def hear(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.entry.name} ended with exit code {self.process.wait()}; see above")
        return json.loads(line)

    def turn(self, batches: list[int]) -> dict[str, Any]:
        print(json.dumps({"batches": batches}), file=self.process.stdin, flush=True)
        return self.hear()

    def median(self) -> float:
        return statistics.median(self.seconds)


def seat(entry: Entry, folder: Path, threads: int) -> Player:
    """Start a contestant; it is ready when its first line has come."""
    command = [str(entry.python), "-m", f"benchmarks.contestants.{entry.module}", entry.game, str(folder), str(threads)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return Player(entry, process)


def play(entries: list[Entry], folder: Path, turn: list[int], rounds: int, threads: int, patience: int) -> list[Player]:
    """Warm up with one turn each, then `rounds` turns each, interleaved. A contestant that fails is left out."""
    players = []
    for entry in entries:
        player = seat(entry, folder, threads)
        try:
            player.facts = player.hear()
            player.turn(turn)
        except (RuntimeError, json.JSONDecodeError) as error:
            print(f"left out: {error}", file=sys.stderr)
            player.process.kill()
            continue
        players.append(player)
    for _ in range(rounds):
        for player in players:
            _measure(player, turn, patience)
    for player in players:
        player.process.stdin.close()
        player.process.wait()
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
    found = {player.entry.name: player for player in players}
    reference = found[base].median() if base in found else None
    return [
        {
            "name": name,
            "median": units / player.median(),
            "least": units / max(player.seconds),
            "most": units / min(player.seconds),
            "ratio": reference / player.median() if reference else None,
            "peak_MiB": round(player.peak),
            "noisy": player.noisy,
            "turns": len(player.seconds),
            "seconds": [round(x, 4) for x in player.seconds],
            "parameters": player.facts.get("parameters"),
        }
        for name, player in found.items()
    ]
