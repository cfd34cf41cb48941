"""A SLURM for tests, of one node on this machine: own folder and ports, no cgroups, accounting, munge."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helpers.waiting import free_ports, wait_for

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
PATIENCE = 60.0
TEMPLATE = Path(__file__).with_name("slurm.conf")


class NoSlurm(Exception):
    """Its programs are not installed; the message names them. One that is installed and does not start is a failure."""


@contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """Start it; yields the environment in which its commands find it. Raises NoSlurm."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        raise NoSlurm(f"{', '.join(missing)} not found (Debian: slurm-wlm)")
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    configuration = folder / "slurm.conf"
    port, node = free_ports(2)
    configuration.write_text(TEMPLATE.read_text().format(host=host, user=user, folder=folder, port=port, node=node))
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": path}
    with ExitStack() as stack:
        for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "node1"]):
            stack.enter_context(_daemon(command, environment, folder / f"{'-'.join(command)}.log"))
        _wait_for_node(environment, folder)
        yield environment


@contextmanager
def _daemon(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_node(environment: dict[str, str], folder: Path) -> None:
    def found() -> subprocess.CompletedProcess:
        asked = ["sinfo", "--noheader", "--Node", "--format=%t"]
        return subprocess.run(asked, env=environment, capture_output=True, text=True)

    def logs() -> str:
        last = found()
        return "\n".join(
            [last.stdout, last.stderr, *(path.read_text()[-600:] for path in sorted(folder.glob("*.log")))]
        )

    wait_for(lambda: found().stdout.split() == ["idle"], PATIENCE, logs, pause=0.5)
