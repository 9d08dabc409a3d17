"""A server on 127.0.0.1 with the requests of the Hugging Face Hub that an upload and a download need."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """Keeps the files of one model and the requests that it received."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, str, str | None]] = []
        """Method, path, and token of every request."""
        self.created: list[dict[str, object]] = []
        self.files: dict[str, bytes] = {}
        self.private = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def _body(self) -> bytes:
        self.server.requests.append((self.command, self.path, self.headers.get("Authorization")))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _send(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_json(self, tree: object, status: int = 200) -> None:
        self._send(json.dumps(tree).encode(), status, Content_Type="application/json")

    def do_POST(self) -> None:
        body, server = self._body(), self.server
        if self.path == "/api/repos/create":
            server.created.append(json.loads(body))
            self._send_json({"url": f"{server.address}/{_name(json.loads(body))}"})
        elif self.path == "/api/validate-yaml":
            self._send_json({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(body)["files"]]
            self._send_json({"files": [each | {"shouldIgnore": False} for each in files]})
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self._send_json(
                {"commitUrl": f"{server.address}/me/tiny/commit/{COMMIT}", "commitOid": COMMIT, "success": True}
            )
        else:
            self._send_json({"error": "not part of the fake"}, 404)

    def do_GET(self) -> None:
        self._body()
        name = self.path.partition("/resolve/")[2].partition("/")[2]
        if name in self.server.files:
            content = self.server.files[name]
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            self._send(content, ETag=etag, X_Repo_Commit=COMMIT, Accept_Ranges="bytes")
        elif self.path.startswith("/api/models/me/tiny/tree/"):
            self._send_json(
                [{"type": "file", "oid": "0", "size": len(v), "path": k} for k, v in self.server.files.items()]
            )
        elif self.path.startswith("/api/models/me/tiny"):
            files = [{"rfilename": each} for each in self.server.files]
            self._send_json({"id": "me/tiny", "sha": COMMIT, "private": self.server.private, "siblings": files})
        else:
            self._send(b"{}", 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


def _name(created: dict[str, str]) -> str:
    return "/".join(filter(None, (created.get("organization"), created["name"])))


@contextmanager
def serve_hub() -> Iterator[FakeHub]:
    """Run the server in a thread."""
    hub = FakeHub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
