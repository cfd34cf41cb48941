"""What the dashboard costs: the server's memory and time, and when a browser paints its first page."""

import gzip
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.contest import ROOT

TURNS = 7
IDLE = 30.0
"""seconds over which the server's processor time is counted"""


def dashboard(options: Namespace) -> None:
    """A folder of runs that nobody trained (tests/helpers/studies.py), the verb in a process of its own, Chromium."""
    from tests.helpers.studies import thousand  # the tests' folders: at the top they would be needed by every game

    with tempfile.TemporaryDirectory() as root, tempfile.TemporaryDirectory() as own:
        thousand(Path(root), options.runs)
        with _serving(root, own) as (address, pid, seconds):
            found = {"seconds until it answers": seconds} | _page_numbers(address, Path(root), pid)
        with _serving(root, own) as (address, pid, seconds):
            _fetch_time(f"{address}/")
            found |= {"second start, processor until the first page, s": _cpu_seconds(pid)}
    body = [[name, f"{value:.3g}"] for name, value in found.items()]
    notes = [
        f"{options.runs} runs in tables and a search, some of them running; medians of {TURNS}",
        "first paint: Chromium, headless, 1280 x 900, a fresh profile; from the navigation's start, server included",
        f"processor: share of one core over {IDLE:g} s; an open page asks every 2 s, one in the background does not",
    ]
    text = "\n".join(
        ["## Dashboard", "", *report._table(["", "value"], body), "", *(f"- {note}" for note in notes), ""]
    )
    report.write("dashboard", text, {"machine": machine.facts(1), "values": found, "notes": notes}, options.out)


@contextmanager
def _serving(root: str, own: str) -> Iterator[tuple[str, int, float]]:
    """Its address, its process, and the seconds until it answered; what it keeps is in `own`."""
    argv = [sys.executable, "-m", "lightning_tfm.cli.main", "dashboard", "--out", root, "--port", "0"]
    env = os.environ | {"XDG_CACHE_HOME": own, "XDG_DATA_HOME": own}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is not compiled at each start
    began = time.perf_counter()
    server = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0].rstrip("/")
        yield address, server.pid, time.perf_counter() - began
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def _page_numbers(address: str, root: Path, pid: int) -> dict[str, float]:
    numbers = {"first page, everything read for the first time, s": _fetch_time(f"{address}/")[0]}
    numbers |= {"processor until then, s": _cpu_seconds(pid)}
    times, size = zip(*(_fetch_time(f"{address}/") for _ in range(TURNS)), strict=True)
    numbers |= {"page, s": statistics.median(times), "page as it is sent, KB": size[0] / 1e3}
    tag = json.loads(gzip.decompress(_get(f"{address}/news?since=0")))["tag"]
    numbers["a condition over all runs, ms"] = 1000 * statistics.median(
        _fetch_time(f"{address}/runs?where=d_model+%3E+32+and+ppl+%3C+2.2&columns=lr_factor")[0] for _ in range(TURNS)
    )
    waited = []
    for _ in range(TURNS):
        time.sleep(1.1)  # the folder is looked at once a second at most
        waited.append(_fetch_time(f"{address}/news?since={tag}", tag)[0])
    numbers["poll, nothing new, ms"] = 1000 * statistics.median(waited)
    running = [path.parent.parent for path in root.glob("runs/*/attempts/0001.beat")]
    fresh = []
    for turn in range(TURNS):
        for folder in running:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": 1990 + turn, "dev_ppl": 2.0 - turn / 100}) + "\n")
        time.sleep(1.1)
        fresh.append(_fetch_time(f"{address}/news?since={tag}")[0])
    numbers[f"poll, {len(running)} runs went on, ms"] = 1000 * statistics.median(fresh)
    numbers["resident memory of the server, MiB"] = _status(pid, "VmRSS") / 1024
    numbers |= _browser(address, pid)
    numbers["the most it ever had, MiB"] = _status(pid, "VmHWM") / 1024
    numbers["processor with no page open, %"] = _busy(pid)
    return numbers


def _browser(address: str, pid: int) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    from tests.helpers.browser import chromium

    paints = []
    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for _ in range(TURNS):
            context = started.new_context(viewport={"width": 1280, "height": 900})
            page = context.new_page()
            page.goto(f"{address}/")
            paints.append(_paint(page))
            context.close()
        page = started.new_page()
        page.goto(f"{address}/")
        busy = _busy(pid)
        started.close()
    return {
        "first paint, ms": statistics.median(paints),
        "slowest of them, ms": max(paints),
        "processor with a page open, %": busy,
    }


def _paint(page: Any) -> float:
    while not page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
        page.wait_for_timeout(20)
    return page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")


def _get(url: str, tag: str = "") -> bytes:
    headers = {"Accept-Encoding": "gzip"} | ({"If-None-Match": f'"{tag}"'} if tag else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        if error.code != 304:
            raise
        return b""


def _fetch_time(url: str, tag: str = "") -> tuple[float, int]:
    began = time.perf_counter()
    content = _get(url, tag)
    return time.perf_counter() - began, len(content)


def _status(pid: int, key: str) -> int:
    """KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1])


def _busy(pid: int) -> float:
    before = _cpu_seconds(pid)
    time.sleep(IDLE)
    return 100 * (_cpu_seconds(pid) - before) / IDLE


def _cpu_seconds(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
