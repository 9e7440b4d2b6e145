"""Failing servers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class _Server(BaseHTTPRequestHandler):
    """Fails every request in the way named by the server's `failure`."""

    def do_GET(self) -> None:
        server: Any = self.server
        if server.failure == "slow":
            server.released.wait(20)
        body = {"500": b'{"error_code": "INTERNAL_ERROR", "message": "oops"}', "no MLflow": b"<p>hello"}
        self.send_response(500 if server.failure == "500" else 200)
        answer = body.get(server.failure, b"")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        with suppress(BrokenPipeError):  # the client has given up
            self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serve(failure: str) -> Iterator[str]:
    """Start a failing server and yield its URI."""
    if failure == "refused":
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        yield f"http://127.0.0.1:{port}"
        return
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    server.failure, server.released = failure, threading.Event()  # pyright: ignore
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://me:secret@127.0.0.1:{server.server_port}"
    finally:
        server.released.set()  # pyright: ignore[reportAttributeAccessIssue]
        server.shutdown()
        server.server_close()
        thread.join()
