"""A web server on the loopback that misbehaves as it is told."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class File:
    """What the server holds under one path, and how it behaves there."""

    content: bytes
    cut_after: int = 0
    """bytes of each answer after which the connection breaks; 0: never"""
    status: int = 200
    ranges: bool = True
    announce: int | None = None
    """a Content-Length other than the true one"""
    asked: list[str] = field(default_factory=list)
    """the Range header of every request"""


@contextmanager
def serve(files: dict[str, File]) -> Iterator[str]:
    """The address of a running server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            file = files.get(self.path.lstrip("/"))
            if file is None or file.status != 200:
                self.send_error(404 if file is None else file.status)
                return
            file.asked.append(self.headers["Range"] or "")
            content, tag = file.content, f'"{hashlib.sha256(file.content).hexdigest()[:16]}"'
            start = 0
            if file.ranges and self.headers["Range"] and self.headers["If-Range"] == tag:
                start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                if start > len(content):
                    self.send_error(416)
                    return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            if file.ranges:
                self.send_header("ETag", tag)
            rest = content[start:]
            self.send_header("Content-Length", str(len(rest) if file.announce is None else file.announce))
            self.end_headers()
            self.wfile.write(rest[: file.cut_after] if file.cut_after else rest)
            self.close_connection = True

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
