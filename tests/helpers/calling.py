"""The command line in a forked child: an interpreter of its own would need seconds to import what is here already."""

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lightning_tfm.cli.main import main
from lightning_tfm.runs.process.forking import fork, unblock_signals
from tests.helpers.waiting import wait_for

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Said:
    """How a call ended: its exit code (negative for a signal), and what it wrote."""

    code: int
    out: str
    err: str


class Call:
    """`action()` in a child that reads `given` and stands in `folder`; begun at once."""

    def __init__(self, action: Callable[[], object], given: str = "", folder: Path = ROOT):
        import lightning.pytorch  # noqa: F401  for the children

        self._files = [tempfile.TemporaryFile() for _ in range(3)]
        self._files[0].write(given.encode())
        self._files[0].seek(0)
        self._status: int | None = None
        self.pid = fork(lambda: self._be_child(action, folder))

    def poll(self) -> int | None:
        """The exit code, None as long as it runs."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def wait(self, seconds: float = 240.0) -> Said:
        wait_for(lambda: self.poll() is not None, seconds, "the end of a call")
        assert self._status is not None
        said = []
        for file in self._files[1:]:
            file.seek(0)
            said.append(file.read().decode())
        for file in self._files:
            file.close()
        return Said(self._status, *said)

    def _be_child(self, action: Callable[[], object], folder: Path) -> int:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        unblock_signals()
        os.chdir(folder)
        os.environ["COLUMNS"] = "80"
        for descriptor, file in enumerate(self._files):
            os.dup2(file.fileno(), descriptor)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode) for number, mode in ((0, "r"), (1, "w"), (2, "w")))
        try:
            code = action()
        except SystemExit as stop:
            code = stop.code
        return code if isinstance(code, int) else int(code is not None)


def begin(*argv: str, given: str = "") -> Call:
    """A verb, running."""

    def action() -> int:
        sys.argv = ["lightning-tfm", *argv]  # which goes into records
        return main(argv)

    return Call(action, given)


def call(*argv: str, code: int = 0, given: str = "") -> Said:
    """A verb at its end, which has to be `code`."""
    said = begin(*argv, given=given).wait()
    assert said.code == code, said.err
    return said
