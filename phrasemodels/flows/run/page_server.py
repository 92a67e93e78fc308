"""A page on which one types a text and sees its parse, served to this machine; also as JSON for programs."""

import json
import threading
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from phrasemodels.flows.report.attention import page
from phrasemodels.parsing.parser import Parser

MOST_BYTES = 200_000
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none'"
Answer = tuple[HTTPStatus, str, str]  # status, media type, text


def server(parser: Parser, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server of the page, which has not started. OSError: the port is taken."""
    lock = threading.Lock()  # one text at a time: a parse takes all threads of torch

    class Handler(_Handler):
        def answer(self, path: str, text: str) -> Answer:
            with lock:
                return answered(parser, path, text)

    return ThreadingHTTPServer((host, port), Handler)


def answered(parser: Parser, path: str, text: str) -> Answer:
    """Return the answer to a text: a page at /, a list of parses at /parse.json."""
    if path == "/":
        return HTTPStatus.OK, "text/html", page(parser, text)
    if path == "/parse.json":
        parses = ", ".join(found.json() for found in parser.parse(text))
        return HTTPStatus.OK, "application/json", f"[{parses}]"
    return HTTPStatus.NOT_FOUND, "text/plain", "no such page: the form is at /, JSON at /parse.json"


class _Handler(BaseHTTPRequestHandler):
    """GET and POST of a text, as the field `text` of a form; /parse.json also takes JSON {"text": ...}."""

    server_version, sys_version = "phrasemodels", ""
    timeout = 30  # seconds that a silent client may hold a connection

    def answer(self, path: str, text: str) -> Answer:
        raise NotImplementedError

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        try:
            text = _field(url.query)
        except ValueError as error:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", f"{error}: send one field, text=...")
            return
        self._send(*self._answer(url.path, text))

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "text/plain", f"send a text of at most {MOST_BYTES} bytes")
            return
        body = self.rfile.read(int(length)).decode("utf-8", "replace")
        try:
            is_json = self.headers.get_content_type() == "application/json"
            text = str(json.loads(body)["text"]) if is_json else _field(body)
        except (ValueError, KeyError, TypeError, RecursionError):
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", 'send JSON like {"text": "A sentence."}')
            return
        self._send(*self._answer(urlsplit(self.path).path, text))

    def _answer(self, path: str, text: str) -> Answer:
        """Return the answer to a text, or that it has none; the error is printed where the server runs."""
        try:
            return self.answer(path, text)
        except Exception:
            traceback.print_exc()
            return HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", "the parser failed at this text; the server goes on"

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (headers | {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Texts are nobody's business: nothing is logged."""


def _field(form: str) -> str:
    return parse_qs(form, max_num_fields=10).get("text", [""])[0]
