"""A server of a parser or of a trained model: a page for people and JSON for programs.

Both have one set of bounds. The page of a parser shows trees and arcs as figures and words as a table. It also shows
the most attended words of each label. The page of another model shows its answer to each line. The standard library
serves them. FastAPI would add five packages to an installation. Its page of the interface loads scripts from elsewhere.
The interface is described at /openapi.json.
"""

import contextlib
import heapq
import io
import ipaddress
import itertools
import json
import resource
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from markupsafe import Markup

from phrasemodels import __version__
from phrasemodels.flows.report import readable, render
from phrasemodels.parsing.parser import Parse, Parser, Turn
from phrasemodels.saved import first_line

if TYPE_CHECKING:
    from phrasemodels.flows.results.models import Model

MOST_BYTES = 20_000  # of a request: to divide so much text into sentences takes about 2 s, one turn
SECONDS = 30.0  # in which a request has to arrive, and its answer to be taken
CONNECTIONS = 256
BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
REQUESTS = 128  # texts that are answered at a time: a turn waits for one turn of each other
TURN = 200  # words of a model's turn, or one line
MOST_WORDS = 80  # of a sentence whose figures are drawn
SHOWN, LOOKS = 20, 5  # sentences of a page, and the most attended words of a label
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; frame-ancestors 'none'"
PLAIN, JSON_TEXT, FORM = "text/plain", "application/json", "application/x-www-form-urlencoded"
INTERFACE = Path(__file__).with_name("openapi.json")  # of parsers and models
ASK = 'send {"text": "A sentence."} as application/json, or a form with the field text'


@dataclass(frozen=True)
class Served:
    """A server's answers to a text in turns: a page and at `path` a JSON list."""

    path: str
    page: Callable[[str, Turn], str]
    answer: Callable[[str, Turn], str]


def served_parser(parser: Parser) -> Served:
    """Return the answers of a parser."""

    def answer(text: str, turn: Turn) -> str:
        return f"[{', '.join(found.json() for found in parser.parse_in_turns(text, turn))}]"

    return Served("/parse.json", lambda text, turn: page(parser, text, turn), answer)


def served_model(model: "Model") -> Served:
    """Return the answers of a trained model to each non-empty line of a text. ValueError: the model takes no text."""
    if not model.experiment.recipe.takes_text:
        raise ValueError(f"{model.name}: its problem takes no text, so there is nothing to serve")

    def rows(text: str, turn: Turn) -> list[dict[str, str]]:
        lines, found = [line for line in text.splitlines() if line.strip()], list[tuple[str, str]]()
        while some := lines[len(found) :]:
            with turn():
                try:
                    found += model.answers(some[: max(1, within(some, TURN))])
                except ValueError as error:  # such as a pair without its second text
                    raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, first_line(error)) from error
        answers = zip(lines, found, strict=True)
        return [{"source": line, "answer": said, "error": problem} for line, (said, problem) in answers]

    def page(text: str, turn: Turn) -> str:
        card = {"name": model.description, "licence": ", ".join(model.weights.meta["licences"])}
        return render("answer.html.jinja", text=text, shown=rows(text, turn), left_out=0, card=card)

    return Served("/predict.json", page, lambda text, turn: json.dumps(rows(text, turn), ensure_ascii=False))


def within(texts: Sequence[str], words: int) -> int:
    """Return how many of the first texts fit into so many words. Ten characters count as one word at least."""
    for count, text in enumerate(texts):
        words -= 1 + max(len(text) // 10, len(text.split()))
        if words < 0:
            return count
    return len(texts)


@dataclass(frozen=True)
class Shown:
    """A parse with its figures. looks: for each label of the tree, (word, weight) of its most attended words."""

    parse: Parse
    tree: Markup
    arcs: Markup
    looks: list[tuple[str, list[tuple[str, float]]]]

    @property
    def words(self) -> list[dict[str, Any]]:
        """A row for each word: its number, form, tags, head and relation."""
        parse = self.parse
        none = [""] * len(parse.tokens)
        rows = zip(parse.tokens, parse.universal or none, parse.tags or none, parse.relations or none, strict=True)
        return [
            {"number": k, "form": form, "universal": upos, "tag": xpos, "head": self._head(k), "relation": relation}
            for k, (form, upos, xpos, relation) in enumerate(rows, 1)
        ]

    def _head(self, number: int) -> str:
        head = self.parse.heads[number - 1] if self.parse.heads else -1
        return "" if head < 0 else f"{self.parse.tokens[head - 1]} ({head})" if head else "the root"


def page(parser: Parser, text: str, turn: Turn | None = None) -> str:
    """Return the page of a text: a form, and the parses of its first SHOWN sentences."""
    parses = parser.parse_in_turns(text, turn) if text.strip() else []
    shown = [shown_parse(parser, parse) for parse in parses[:SHOWN]]
    return render("parse.html.jinja", text=text, shown=shown, left_out=len(parses) - len(shown), card=parser.card)


def shown_parse(parser: Parser, parse: Parse) -> Shown:
    """Return a parse with its figures. They are empty for more than MOST_WORDS words."""
    if len(parse.tokens) > MOST_WORDS:
        return Shown(parse, Markup(), Markup(), [])
    tree = Markup(readable(parse.svg("tree"))) if parse.tree else Markup()
    arcs = Markup(readable(parse.svg("arcs"))) if parse.heads else Markup()
    return Shown(parse, tree, arcs, _looks(parser, parse))


def _looks(parser: Parser, parse: Parse) -> list[tuple[str, list[tuple[str, float]]]]:
    if parse.tree is None or parser.fused.encoder.top is None:
        return []
    labels, weights = parser.attention(parse.tokens)
    words = ["(start)", *parse.tokens, "(end)"]
    used = {span.label for span in parse.tree.spans}
    rows = [(label, row) for label, row in zip(labels, weights, strict=True) if used & set(label.split("::"))]
    return [(label, [(words[k], float(row[k])) for k in (-row).argsort()[:LOOKS]]) for label, row in rows]


class Turns:
    """A lock that is passed on by fair shares.

    A short text waits for the turn under way and not for all earlier long texts. Each waiting text has its own size
    plus the size of all that was passed on before it asked. The least is next. So long texts wait for short ones but
    not for ever.
    """

    def __init__(self) -> None:
        self._lock, self._taken, self._passed = threading.Lock(), False, 0
        self._waiting: list[tuple[int, int, threading.Event]] = []
        self._numbers = itertools.count()

    @contextmanager
    def __call__(self, size: int = 0) -> Iterator[None]:
        """Wait for one's turn, and pass it on at the end. size: of the text."""
        mine = threading.Event()
        with self._lock:
            if self._taken:
                heapq.heappush(self._waiting, (self._passed + size, next(self._numbers), mine))
            else:
                self._taken = True
                mine.set()
        mine.wait()
        try:
            yield
        finally:
            with self._lock:
                if self._waiting:
                    self._passed, _, following = heapq.heappop(self._waiting)
                    following.set()
                else:
                    self._taken = False


class PageServer(ThreadingHTTPServer):
    """A server with a bounded number of connections. It prints no traceback."""

    request_queue_size = 1024  # connections that wait to be accepted
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type["_Handler"]) -> None:
        # each takes a descriptor: without any left, the loop that accepts connections would never rest
        most = min(CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        self._places = threading.BoundedSemaphore(most)
        try:
            super().__init__(address, handler)
        except OSError as error:
            raise OSError(f"{address[0]}:{address[1]}: {error.strerror}: choose another --port or --host") from error

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread, or refuse it at once if there are too many."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with contextlib.suppress(OSError):
            request.setblocking(False)
            request.sendall(BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of a request in one line. A vanished client is no error."""
        error = sys.exception()
        if not isinstance(error, OSError):
            print(f"a request failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


class Arriving(io.RawIOBase):
    """The input of a client until a deadline. TimeoutError: it sends for longer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.until = connection, time.monotonic() + SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if (left := self.until - time.monotonic()) <= 0:
            raise TimeoutError("the request has not arrived in time")
        self.connection.settimeout(left)
        try:
            return self.connection.recv_into(buffer)
        finally:
            self.connection.settimeout(SECONDS)  # in which a client takes the answer


def server(served: Served, host: str, port: int) -> PageServer:
    """Return a server that has not started. OSError: the port is taken."""
    handler = type(
        "Handler", (_Handler,), {"served": served, "turns": Turns(), "places": threading.BoundedSemaphore(REQUESTS)}
    )
    return PageServer((host, port), handler)


def _is_loopback(host: str) -> bool:
    """Whether a host is an address of this machine alone. Behind a name a page of elsewhere may ask (DNS rebinding)."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_client(connection: socket.socket) -> None:
    """Raise a ConnectionError if a client has left or sends no more. Nobody waits for its answer."""
    readable, _, _ = select.select([connection], [], [], 0)
    # a closed connection is readable, and has no byte; MSG_PEEK leaves a byte for who reads the next request
    if readable and not connection.recv(1, socket.MSG_PEEK):
        raise ConnectionError("the client is gone")


class RefusedError(Exception):
    """A refused request: its status, and why in one line."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    """GET, HEAD and POST of a text as the field `text` of a form or of JSON {"text": ...}."""

    server_version, sys_version = "phrasemodels", ""
    served: Served
    turns: Turns
    places: threading.BoundedSemaphore

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(Arriving(self.connection))

    @contextmanager
    def turn(self, size: int) -> Iterator[None]:
        """Wait for a turn. ConnectionError: the client has left. size: of the text."""
        with self.turns(size):
            check_client(self.connection)
            yield

    def in_turns(self, answer: Callable[[str, Turn], str], text: str) -> str:
        """Answer a text in one of REQUESTS places. RefusedError: none is free."""
        if not self.places.acquire(blocking=False):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"{REQUESTS} texts are being answered: ask again later")
        try:
            return answer(text, partial(self.turn, len(text)))
        finally:
            self.places.release()

    def do_GET(self) -> None:
        self._answer(self._text_of_address)

    def do_HEAD(self) -> None:
        self._answer(self._text_of_address)

    def do_POST(self) -> None:
        self._answer(self._text_of_body)

    def _answer(self, text: Any) -> None:
        """Send the answer to a text, or why it has none."""
        try:
            try:
                path, host = (
                    urlsplit(self.path).path,
                    urlsplit(f"//{self.headers.get('Host', '')}").hostname or "localhost",
                )
            except ValueError:
                raise RefusedError(HTTPStatus.BAD_REQUEST, "this is no address") from None
            if _is_loopback(str(self.connection.getsockname()[0])) and not (host == "localhost" or _is_loopback(host)):
                raise RefusedError(HTTPStatus.FORBIDDEN, "another name led here: ask for localhost")
            if path == "/health":
                self._send(HTTPStatus.OK, JSON_TEXT, json.dumps({"status": "ok", "version": __version__}))
            elif path == "/openapi.json":
                self._send(HTTPStatus.OK, JSON_TEXT, json.dumps(interface(self.served)))
            elif path == "/":
                self._send(HTTPStatus.OK, "text/html", self.in_turns(self.served.page, text()))
            elif path == self.served.path:
                self._send(HTTPStatus.OK, JSON_TEXT, self.in_turns(self.served.answer, text()))
            else:
                where = f"the form is at /, JSON at {self.served.path}; see /openapi.json"
                raise RefusedError(HTTPStatus.NOT_FOUND, where)
        except RefusedError as error:
            # the body may not have been read: the next request would begin in the middle of it
            self.close_connection = True
            self._send(error.status, PLAIN, str(error))
        except OSError:  # the client is gone
            self.close_connection = True
        except Exception as error:
            print(f"a text could not be answered: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, PLAIN, "the model failed at this text; the server goes on")

    def _text_of_address(self) -> str:
        address = urlsplit(self.path)
        if address.path == "/" and not address.query:
            return ""  # the page is asked for
        return _field(address.query)

    def _text_of_body(self) -> str:
        length = self.headers.get("Content-Length", "")
        if not length:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "send Content-Length")
        if not (length.isdecimal() and length.isascii()):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
        if len(length) > 9 or int(length) > MOST_BYTES:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send a text of at most {MOST_BYTES} bytes")
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise ConnectionError("the client is gone")
        kind = self.headers.get("Content-Type", FORM).partition(";")[0].strip().lower()
        if kind == FORM:
            return _field(raw.decode("utf-8", "replace"))
        if kind != JSON_TEXT:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"this is {readable(kind)[:50]}: {ASK}")
        try:
            sent = json.loads(raw.decode("utf-8"))
        except (ValueError, RecursionError):
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"this is no JSON in UTF-8: {ASK}") from None
        if not isinstance(sent, dict) or "text" not in sent:
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"there is no field text: {ASK}")
        if not isinstance(sent["text"], str):
            kind = "null" if sent["text"] is None else type(sent["text"]).__name__
            raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"text is {kind}, not a string: {ASK}")
        _check_fields(sent)
        return sent["text"]

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace") + b"\n" * (kind == PLAIN)
        self.send_response(status)
        headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (headers | {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send why a request line or a method is refused, in one line."""
        self.close_connection = True
        self._send(HTTPStatus(code), PLAIN, HTTPStatus(code).phrase)

    def finish(self) -> None:
        """Close the connection, even if its client is gone."""
        try:
            super().finish()
        except OSError:
            self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Texts are nobody's business: nothing is logged."""


def _field(form: str) -> str:
    try:
        fields = parse_qs(form, keep_blank_values=True, max_num_fields=10)
    except ValueError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"{error}: send one field, text=...") from None
    if "text" not in fields:
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"there is no field text: {ASK}")
    _check_fields(fields)
    return fields["text"][0]


def _check_fields(fields: Iterable[str]) -> None:
    if unknown := [name for name in fields if name != "text"]:
        raise RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"there is no option {readable(unknown[0])[:50]!r}: {ASK}")


def interface(served: Served) -> dict[str, Any]:
    """Return the description of a server in OpenAPI's form."""
    known: dict[str, Any] = json.loads(INTERFACE.read_text(encoding="utf-8"))
    paths = {path: one for path, one in known["paths"].items() if path in (served.path, "/health", "/")}
    return known | {"info": known["info"] | {"version": __version__}, "paths": paths}
