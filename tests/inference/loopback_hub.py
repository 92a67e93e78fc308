"""A server with the interface of the Hugging Face Hub, at 127.0.0.1: repositories in memory, as `huggingface_hub` uses them."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub(ThreadingHTTPServer):
    """Repositories by name, files by path; and the tokens that were shown. All files are uploaded inside the commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.tokens: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.tokens.add(self.headers.get("Authorization", ""))
        path = self.path.partition("?")[0].strip("/")
        if path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.server.repositories.setdefault(name, {})
            self.server.private.setdefault(name, asked.get("private") or asked.get("visibility") == "private")
            return self.json({"url": f"{self.server.url}/{name}", "name": name})
        if path == "api/validate-yaml":  # of README.md
            return self.json({"errors": [], "warnings": []})
        if path.startswith("api/models/"):
            user, model, *what = path.removeprefix("api/models/").split("/")
            return self.of_repository(f"{user}/{model}", what[0] if what else "", body)
        user, model, resolve, _, *file = path.split("/")
        found = self.server.repositories.get(f"{user}/{model}", {}).get("/".join(file))
        if resolve != "resolve" or found is None:
            return self.missing("EntryNotFound")
        digest = hashlib.sha256(found).hexdigest()
        return self.reply(found, {"ETag": f'"{digest}"', "X-Repo-Commit": "c" * 40})

    def of_repository(self, name: str, what: str, body: bytes) -> None:
        files = self.server.repositories.get(name)
        if files is None:
            return self.missing("RepoNotFound")
        if what == "preupload":
            asked = json.loads(body)["files"]
            modes = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in asked]
            return self.json({"files": modes})
        if what == "commit":
            for line in body.splitlines():
                said = json.loads(line)
                if said["key"] == "file":
                    files[said["value"]["path"]] = base64.b64decode(said["value"]["content"])
            commit = {
                "success": True,
                "commitOid": "c" * 40,
                "commitUrl": f"{self.server.url}/{name}/commit/{'c' * 40}",
            }
            return self.json({**commit, "hookOutput": ""})
        if what == "tree":
            tree = [
                {"type": "file", "path": p, "size": len(own), "oid": hashlib.sha1(own).hexdigest()}
                for p, own in files.items()
            ]
            return self.json(tree)
        siblings = [{"rfilename": path} for path in files]
        return self.json(
            {
                "id": name,
                "modelId": name,
                "sha": "c" * 40,
                "siblings": siblings,
                "private": self.server.private.get(name, False),
                "tags": [],
            }
        )

    do_GET = do_POST = do_PUT = do_HEAD = answer  # noqa: N815  names of the standard library

    def json(self, value: Any) -> None:
        self.reply(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def missing(self, code: str) -> None:
        self.reply(b"{}", {"X-Error-Code": code, "X-Error-Message": "not here"}, 404)

    def reply(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve a hub in this context."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
