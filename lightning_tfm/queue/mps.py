"""NVIDIA's Multi-Process Service: runs that share a GPU compute on it side by side instead of taking turns.

One control daemon for each device, with its own folders, started before the workers and stopped after them. What a
killed launcher left running is stopped by the next one on this machine. Nothing here touches CUDA.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_tfm.queue.devices import Devices

CONTROL = "nvidia-cuda-mps-control"
PIPES, LOGS, SEEN = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"
HOME = Path("/tmp")
"""of the pipes, not where TMPDIR says: a socket's name has at most 107 characters"""
USUAL = HOME / "nvidia-mps"
"""where a daemon is that was started without a folder"""
PATIENCE = 30.0
"""seconds for a daemon to start, or to end"""


@dataclass(frozen=True)
class Daemon:
    """The service of one device."""

    device: str
    pipes: Path
    logs: Path

    def start(self) -> str:
        """Why it did not start; "" where it did."""
        self.pipes.mkdir(parents=True, mode=0o700)
        self.logs.mkdir(parents=True, exist_ok=True)
        return self._told(["-d"], {SEEN: self.device, LOGS: str(self.logs)})

    def stop(self) -> str:
        """Why it did not stop; "" where it did, and its pipes are gone."""
        why = self._told([], {}, "quit\n")
        if not why:
            shutil.rmtree(self.pipes, ignore_errors=True)
        return why

    def environment(self) -> dict[str, str]:
        """What a process needs to be its client. It knows its one device by the number 0, or by its long name."""
        name = "0" if self.device.isdecimal() else self.device
        return {SEEN: name, PIPES: str(self.pipes), LOGS: str(self.logs)}

    def _told(self, words: list[str], more: dict[str, str], text: str = "") -> str:
        environment = {**os.environ, PIPES: str(self.pipes), **more}
        with tempfile.TemporaryFile("w+") as said:  # a pipe would stay open as long as the daemon lives
            try:
                code = subprocess.run(
                    [CONTROL, *words],
                    env=environment,
                    input=text,
                    text=True,
                    stdout=said,
                    stderr=said,
                    timeout=PATIENCE,
                    start_new_session=True,  # Ctrl-C is for the launcher
                ).returncode
            except subprocess.TimeoutExpired:
                return f"{CONTROL} gave no answer within {PATIENCE:g} s"
            except OSError as error:
                return str(error)
            said.seek(0)
            lines = said.read().split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return "" if code == 0 else last or f"{CONTROL} ended with exit code {code}"


@contextmanager
def served(devices: Devices | None, workers: int, folder: Path, say: Callable[[str], None]) -> Iterator[Devices | None]:
    """`devices` with a service for each that `workers` use, while the block runs, where runs share a GPU.

    Without the service they take turns on it; `say` reports that, and why. Logs are below `folder`.
    """
    if devices is None or not devices.gpu or devices.runs == 1:
        yield devices
        return
    if there := running():
        say(f"runs that share a GPU are clients of the MPS at {there}")
        yield devices
        return
    if shutil.which(CONTROL) is None:
        say(f"runs that share a GPU take turns on it: {CONTROL}, which comes with NVIDIA's driver, is not installed")
        yield devices
        return
    base = HOME / f"lightning-tfm-mps-{os.getuid()}"
    for why in stop_left(base):
        say(why)
    ours, begun = base / str(os.getpid()), list[Daemon]()
    try:
        for number, device in enumerate(dict.fromkeys(devices.of(slot)[0] for slot in range(workers))):
            logs = (folder / "mps" / device.replace("/", "_")).absolute()
            daemon = Daemon(device, ours / str(number), logs)
            if why := daemon.start():
                say(f"runs that share GPU {device} take turns on it, as its MPS did not start: {why}")
                shutil.rmtree(daemon.pipes, ignore_errors=True)
            else:
                begun.append(daemon)
        yield replace(devices, clients={daemon.device: daemon.environment() for daemon in begun})
    finally:
        for daemon in begun:
            if why := daemon.stop():
                say(f"the MPS of GPU {daemon.device} still runs ({why}): {by_hand(daemon.pipes)}")
        with suppress(OSError):  # one may be left in it
            ours.rmdir()


def running() -> str:
    """Where somebody else's daemon serves this process; "" where none does."""
    told = os.environ.get(PIPES)
    return told or (str(USUAL) if (USUAL / "control").exists() else "")


def stop_left(base: Path) -> list[str]:
    """Stop the daemons whose launcher is dead; returns the messages."""
    said = []
    for pipes in sorted(base.glob("*/*")):
        if not Path("/proc", pipes.parent.name).exists():
            why = Daemon(pipes.name, pipes, pipes).stop()
            shutil.rmtree(pipes, ignore_errors=True)
            ended = f"did not answer ({why})" if why else "was stopped"
            said.append(f"an MPS that a killed launcher had left running {ended}")
            with suppress(OSError):
                pipes.parent.rmdir()
    return said


def by_hand(pipes: Path) -> str:
    return f"echo quit | {PIPES}={pipes} {CONTROL}"
