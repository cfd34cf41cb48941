"""What the dashboard costs: the server's memory and time, and when a browser paints its first page, at 1,000 runs."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from argparse import Namespace
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.contest import ROOT

RUNS = 1000
TURNS = 7
IDLE = 30.0
"""seconds over which the server's processor time is counted"""


def dashboard(options: Namespace) -> None:
    """A folder of runs that nobody trained (tests/dashboard/made.py), the verb in a process of its own, Chromium."""
    from tests.dashboard.made import thousand  # the tests' folders: at the top they would be needed by every game

    with tempfile.TemporaryDirectory() as root:
        thousand(Path(root), RUNS)
        argv = [sys.executable, "-m", "lightning_tfm.cli.main", "dashboard", "--out", root, "--port", "0"]
        began = time.perf_counter()
        server = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().split()[0].rstrip("/")
            found = {"seconds until it answers": time.perf_counter() - began}
            found |= _measured(address, Path(root), server.pid)
        finally:
            server.terminate()
            server.wait()
    body = [[name, f"{value:.3g}"] for name, value in found.items()]
    notes = [
        f"{RUNS} runs in 9 tables and a search, 13 of them running; medians of {TURNS}",
        "first paint: Chromium, headless, 1280 x 900, a fresh profile; from the navigation's start, server included",
        f"processor: share of one core over {IDLE:g} s; an open page asks every 2 s, one in the background does not",
    ]
    text = "\n".join(
        ["## Dashboard", "", *report._table(["", "value"], body), "", *(f"- {note}" for note in notes), ""]
    )
    report.write("dashboard", text, {"machine": machine.facts(1), "values": found, "notes": notes}, options.out)


def _measured(address: str, root: Path, pid: int) -> dict[str, float]:
    found = {"first page, everything read for the first time, s": _timed(f"{address}/")[0]}
    times, size = zip(*(_timed(f"{address}/") for _ in range(TURNS)), strict=True)
    found |= {"page, s": statistics.median(times), "page, MB": size[0] / 1e6}
    tag = json.loads(_get(f"{address}/news?since=0"))["tag"]
    waited = []
    for _ in range(TURNS):
        time.sleep(1.1)  # the folder is looked at once a second at most
        waited.append(_timed(f"{address}/news?since={tag}", tag)[0])
    found["poll, nothing new, ms"] = 1000 * statistics.median(waited)
    running = [path.parent.parent for path in root.glob("runs/*/attempts/0001.beat")]
    fresh = []
    for turn in range(TURNS):
        for folder in running:
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"step": 1990 + turn, "dev_ppl": 2.0 - turn / 100}) + "\n")
        time.sleep(1.1)
        fresh.append(_timed(f"{address}/news?since={tag}")[0])
    found[f"poll, {len(running)} runs went on, ms"] = 1000 * statistics.median(fresh)
    found["resident memory of the server, MiB"] = _status(pid, "VmRSS") / 1024
    found |= _browser(address, pid)
    found["the most it ever had, MiB"] = _status(pid, "VmHWM") / 1024
    found["processor with no page open, %"] = _busy(pid)
    return found


def _browser(address: str, pid: int) -> dict[str, float]:
    from playwright.sync_api import sync_playwright

    from tests.browser import chromium

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
    request = urllib.request.Request(url, headers={"If-None-Match": f'"{tag}"'} if tag else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        if error.code != 304:
            raise
        return b""


def _timed(url: str, tag: str = "") -> tuple[float, int]:
    began = time.perf_counter()
    content = _get(url, tag)
    return time.perf_counter() - began, len(content)


def _status(pid: int, key: str) -> int:
    """KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{key}:")).split()[1])


def _busy(pid: int) -> float:
    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(IDLE)
    return 100 * (used() - before) / IDLE
