"""The dashboard's server: uvicorn on 127.0.0.1 and nowhere else."""

import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from lightning_tfm.errors import UserError

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """A socket on loopback; port 0 takes a free one. Raises UserError where the port is taken or none."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port={port}: a port is between 1 and 65535; 0 takes any free one")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise UserError(f"--port={port}: {error.strerror}; choose another --port, or 0 for any free one") from None
    return made


def server(app: ASGIApp) -> uvicorn.Server:
    """A server of `app`, to be run on a socket of `listen`."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


def serve(app: ASGIApp, port: int, say: Callable[[str], None]) -> None:
    """Answer until Ctrl-C, which raises KeyboardInterrupt. `say` gets the address. Raises UserError."""
    with listen(port) as own:
        own.listen()
        say(f"http://{HOST}:{own.getsockname()[1]}")
        server(app).run(sockets=[own])
