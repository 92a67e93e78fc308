"""Downloads from a real server on loopback that sends wrong content, stalls and breaks off."""

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import ipaddress
import lzma
import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from serving import serving

import phrasemodels.data.download.fetch
from phrasemodels.data.download.fetch import (
    Deadline,
    Internet,
    InterruptedDownloadError,
    Transport,
    _stream,
    check_offline,
    client,
    fetch,
    free_space,
    is_public,
)
from phrasemodels.data.download.manifest import File, Sources, read

TEXT = b"".join(b"a line of text, number %d\n" % i for i in range(4000))


class Server(http.server.BaseHTTPRequestHandler):
    """Each path is a behaviour. `seen` counts requests; slow behaviours advance the client's clock, `seconds`."""

    seen: ClassVar[dict[str, int]] = {}
    seconds: ClassVar[float] = 0.0
    bodies: ClassVar[dict[str, bytes]] = {".gz": gzip.compress(TEXT, mtime=0), ".xz": lzma.compress(TEXT), "": TEXT}

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        behaviour = self.path.strip("/").split("/")[0]
        count = Server.seen[behaviour] = Server.seen.get(behaviour, 0) + 1
        body = Server.bodies[Path(self.path.partition("?")[0]).suffix]
        if behaviour == "busy" and count < 3:
            return self.send_error(503 if count == 1 else 429)
        if behaviour in ("gone", "beyond"):
            return self.send_error(404 if behaviour == "gone" else 416)
        if behaviour == "named" and not self.headers["Host"].startswith("example.org:"):
            return self.send_error(404)
        if behaviour == "loop":
            self.send_response(302)
            self.send_header("Location", self.path)
            return self.end_headers()
        if behaviour == "other":
            body = body[:-9] + b"different"
        if behaviour == "short":
            body = body[: len(body) // 2]
        if behaviour == "endless":
            body = body * 200
        if behaviour == "spoils":
            body = bytes(len(body))
            if count > 1:
                return self.send_error(503)
        if behaviour in ("away", "heavy"):
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/good/t")
            self.send_header("Content-Length", str((1 << 40) * (behaviour == "heavy")))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client does not read it
                for _ in range(1000 * (behaviour == "heavy")):
                    self.wfile.write(body)
            return None
        if endless := {"hints": b"HTTP/1.1 103 Early Hints\r\n\r\n", "drips": b"X"}.get(behaviour):
            with contextlib.suppress(ConnectionError):  # the client has given up
                for _ in range(200):
                    Server.seconds += 1
                    self.wfile.write(endless)
            return None
        first = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(body) - first))
        if behaviour == "lying":
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        stop = len(body) // 3 if behaviour in ("breaks", "spoils") and count == 1 else len(body)
        with contextlib.suppress(ConnectionError):  # the client has given up
            if behaviour == "slow":
                time.sleep(0.3)  # until the client waits for the body: time that passes before is time without data
                Server.seconds += 61
                self.wfile.write(body[first : first + 100])
                self.connection.recv(1)  # until the client gives up
            else:
                self.wfile.write(body[first:stop])
        return None


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)) as address:
        yield address


def a_file(*urls: str) -> File:
    digest = hashlib.sha256(TEXT).hexdigest()
    return File(name="t.en", sha256=digest, bytes=len(TEXT), urls=urls, mirror="corpus/t.en.gz")


QUICK = Sources(private=True, wait=0.01)
SERVER_TIME = SimpleNamespace(monotonic=lambda: Server.seconds)


@pytest.mark.parametrize("path", ["good/t.gz", "good/t.xz", "good/t", "busy/t.gz", "breaks/t", "lying/t"])
def test_a_file_is_fetched_whole(url: str, path: str, tmp_path: Path) -> None:
    Server.seen.clear()
    assert fetch(a_file(f"{url}/{path}"), tmp_path / "t.en", QUICK) == f"{url}/{path}"
    assert (tmp_path / "t.en").read_bytes() == TEXT
    assert os.listdir(tmp_path) == ["t.en"]
    assert Server.seen == {path.split("/")[0]: {"busy": 3, "breaks": 2}.get(path.split("/")[0], 1)}


def test_the_origin_of_a_file_is_reported_without_the_query(url: str, tmp_path: Path) -> None:
    assert fetch(a_file(f"{url}/good/t.gz?key=secret"), tmp_path / "t.en", QUICK) == f"{url}/good/t.gz"
    with pytest.raises(OSError, match="404") as error:
        fetch(a_file(f"{url}/gone/t?key=secret"), tmp_path / "u.en", QUICK)
    assert "secret" not in str(error.value)


WRONG = [
    ("other/t", "sha256", 1),
    ("short/t.gz", "truncated", 1),
    ("endless/t", "the manifest states fewer", 1),
    ("gone/t.gz", "404", 1),
    ("beyond/t", "416", 1),
    ("loop/t.gz", "more than 10 redirects", 11),
    ("spoils/t", "HTTP 503", 5),
]


@pytest.mark.parametrize(("path", "words", "requests"), WRONG)
def test_a_wrong_download_is_reported_and_leaves_no_file(
    url: str, path: str, words: str, requests: int, tmp_path: Path
) -> None:
    Server.seen.clear()
    with pytest.raises(OSError, match=rf"^t\.en cannot be fetched \({url}/{path}: .*{words}.*; put it at .*$"):
        fetch(a_file(f"{url}/{path}"), tmp_path / "t.en", QUICK)
    assert os.listdir(tmp_path) == []
    assert Server.seen[path.split("/")[0]] == requests, "wrong content is not downloaded again"


@pytest.mark.parametrize("path", [path for path, _, _ in WRONG])
def test_a_wrong_download_does_not_affect_the_next_place(url: str, path: str, tmp_path: Path) -> None:
    Server.seen.clear()
    assert fetch(a_file(f"{url}/{path}", f"{url}/good/t"), tmp_path / "t.en", QUICK) == f"{url}/good/t"
    assert os.listdir(tmp_path) == ["t.en"]
    with pytest.raises(OSError, match=f"/{path}: .*; {url}/other/t: sha256 is "):
        fetch(a_file(f"{url}/{path}", f"{url}/other/t"), tmp_path / "u.en", QUICK)


@pytest.mark.parametrize("path", ["hints/t", "drips/t"])
def test_a_response_without_a_body_is_given_up(
    url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phrasemodels.data.download.fetch, "time", SERVER_TIME)
    with pytest.raises(OSError, match=r"/t: no data of the file for 60 seconds\)"):
        fetch(a_file(f"{url}/{path}"), tmp_path / "t.en", QUICK)


def test_the_body_of_a_redirect_is_not_read(url: str, tmp_path: Path) -> None:
    assert fetch(a_file(f"{url}/heavy/t"), tmp_path / "t.en", QUICK) == f"{url}/heavy/t"


def test_a_download_that_is_too_slow_is_given_up(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phrasemodels.data.download.fetch, "time", SERVER_TIME)
    file = a_file(f"{url}/slow/t", f"{url}/good/t")
    assert fetch(file, tmp_path / "t.en", QUICK) == f"{url}/good/t", "the next place is fast enough"
    with pytest.raises(OSError, match="slower than 1000 bytes a second"):
        fetch(a_file(f"{url}/slow/t"), tmp_path / "u.en", QUICK)


def test_bytes_of_an_earlier_attempt_make_a_slow_download_no_faster(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phrasemodels.data.download.fetch, "time", SERVER_TIME)
    monkeypatch.setattr(phrasemodels.data.download.fetch, "SLOWEST", 2.0)
    (part := tmp_path / "part").write_bytes(TEXT[: len(TEXT) // 2])
    assert len(TEXT) // 2 > 2 * 61
    with pytest.raises(InterruptedDownloadError, match="slower than 2 bytes a second"):
        _stream(f"{url}/slow/t", part, len(TEXT), Transport)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "[::1]", "localhost", "169.254.169.254", "10.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "224.0.0.1",
     "[ff0e::1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2002:7f00:1::]", "[2001:0:808:808::]", "[::7f00:1]", "[fec0::1]"],
)  # fmt: skip
def test_hosts_that_are_not_on_the_internet_are_refused(host: str, url: str, tmp_path: Path) -> None:
    Server.seen.clear()
    port = url.rsplit(":", 1)[1]
    with pytest.raises(OSError, match="which is not on the internet; set PHRASEMODELS_PRIVATE"):
        fetch(a_file(f"http://{host}:{port}/good/t"), tmp_path / "t.en", Sources(wait=0.01))
    assert Server.seen == {}
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "address",
    ["192.0.0.8", "192.0.0.170", "192.88.99.1", "198.18.0.1", "255.255.255.255", "240.0.0.1", "3fff::1", "2001:20::1",
     "2001:db8::1", "5f00::1", "fe80::1", "::ffff:192.0.0.8", "64:ff9b::c000:8", "2002:c000:8::"],
)  # fmt: skip
def test_special_addresses_are_refused_on_every_python(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 says that 3fff::1 is global, and its later versions that others are."""
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        monkeypatch.setattr(kind, "is_global", True)
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::1111"])
def test_addresses_on_the_internet_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The addresses of hosts: a lookup takes the first one, and the last one stays. Other hosts have no address."""
    meanings: dict[str, list[str]] = {}

    def resolve(host: str, port: int | None, *_: Any, **__: Any) -> Any:
        known = meanings.get(host, [host])
        try:
            found = str(ipaddress.ip_address(known.pop(0) if len(known) > 1 else known[0]))
        except ValueError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port or 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return meanings


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of all connections. They lead to the server of the test, except 1.1.1.1, which refuses."""
    asked: list[str] = []

    def connect(address: tuple[str, int], *_: Any, **__: Any) -> socket.socket:
        asked.append(address[0])
        if address[0] == "1.1.1.1":
            raise ConnectionRefusedError("refused")
        there = socket.socket()
        there.connect(("127.0.0.1", address[1]))
        return there

    monkeypatch.setattr(socket, "create_connection", connect)
    return asked


@pytest.mark.parametrize(
    ("meaning", "path", "went", "seen"),
    [
        (["8.8.8.8"], "away/t", ["8.8.8.8"], {"away": 1}),
        (["1.1.1.1", "127.0.0.1"], "good/t", ["1.1.1.1"], {}),
        (["127.0.0.1"], "good/t", [], {}),
    ],
)
def test_redirects_and_lookups_to_private_addresses_are_refused(
    meaning: list[str], path: str, went: list[str], seen: Any, url: str, names: Any, reached: list[str], tmp_path: Path
) -> None:
    Server.seen.clear()
    names["example.org"] = meaning
    with pytest.raises(OSError, match=r"127\.0\.0\.1, which is not on the internet"):
        fetch(a_file(url.replace("127.0.0.1", "example.org") + f"/{path}"), tmp_path / "t.en", Sources(wait=0.01))
    assert (reached, Server.seen) == (went, seen)


def test_requests_and_certificates_have_the_name_of_the_host(
    url: str, names: Any, reached: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = url.replace("127.0.0.1", "example.org")
    names["example.org"] = ["8.8.8.8"]
    assert fetch(a_file(f"{there}/named/t"), tmp_path / "t.en", Sources(wait=0.01)) == f"{there}/named/t"
    certificates = []

    def wrap(self: ssl.SSLContext, plain: socket.socket, server_hostname: str) -> None:
        certificates.append(server_hostname)
        plain.close()
        raise ssl.SSLError("no certificate")

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", wrap)
    with pytest.raises(OSError, match="no certificate"):
        fetch(a_file(f"{there}/named/t".replace("http", "https")), tmp_path / "u.en", Sources(wait=0.01))
    assert {*certificates} == {"example.org"} and {*reached} == {"8.8.8.8"}


def test_a_proxy_looks_up_unknown_hosts(url: str, names: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = a_file("http://example.org/t")
    with pytest.raises(OSError, match=r"example\.org has no address"):
        fetch(file, tmp_path / "t.en", Sources(wait=0.01))
    monkeypatch.setenv("HTTP_PROXY", url)
    assert fetch(file, tmp_path / "t.en", Sources(wait=0.01)) == "http://example.org/t"
    monkeypatch.setenv("NO_PROXY", "example.org")
    with pytest.raises(OSError, match=r"example\.org has no address"):
        fetch(file, tmp_path / "u.en", Sources(wait=0.01))


@pytest.mark.parametrize(
    "host",
    ["localhost.", "foo.localhost", "127.0.0.1.", "169.254.169.254.", "0x7f000001.", "[::1%25lo]", "127%2E0.0.1", "127.1.."],
)  # fmt: skip
def test_private_hosts_are_refused_also_with_a_proxy(
    host: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", url)
    with pytest.raises(OSError, match="which is not on the internet"):
        fetch(a_file(f"http://{host}/t"), tmp_path / "t.en", Sources(wait=0.01))


def test_a_folder_in_place_of_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "corpus" / "t.en.gz").mkdir(parents=True)
    with pytest.raises(OSError, match=r"cannot be fetched \(.*/corpus/t.en.gz: not a file\); put it at"):
        fetch(a_file(), tmp_path / "t.en", Sources((tmp_path,)))


def test_urls_are_tried_in_order_and_a_mirror_comes_first(url: str, tmp_path: Path) -> None:
    file = a_file("http://x:y/", f"{url}/gone/t.gz", f"{url}/good/t.gz")
    assert fetch(file, tmp_path / "t.en", QUICK).endswith("good/t.gz")
    mirror = tmp_path / "mirror"
    (there := mirror / "corpus" / "t.en.gz").parent.mkdir(parents=True)
    there.write_bytes(gzip.compress(TEXT))
    assert "mirror" in fetch(file, tmp_path / "u.en", Sources((mirror,), offline=True))
    assert (tmp_path / "u.en").read_bytes() == TEXT
    there.unlink()
    there.symlink_to("/proc/self/mem")  # cannot be read
    assert fetch(file, tmp_path / "v.en", dataclasses.replace(QUICK, mirrors=(mirror,))).endswith("good/t.gz")


def test_a_decompression_bomb_is_stopped_at_the_size_of_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "t.en.gz").write_bytes(gzip.compress(bytes(20_000_000)))
    with pytest.raises(OSError, match=r"t\.en\.gz: holds more than the 110890 bytes"):
        fetch(a_file(), tmp_path / "t.en", Sources((tmp_path,)))
    assert os.listdir(tmp_path) == ["corpus"]


def test_too_little_space_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r" has \d+ MiB free and 1099511627776 MiB are needed"):
        free_space(tmp_path, 1 << 60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('nam = "x"', "did you mean 'name'"),
        ("name = ", "Invalid value"),
        ('[[files]]\nname = "../x"', "pattern|'..'"),
        ('[[files]]\nname = "x"\nurls = ["file:///etc/passwd"]', "not an http"),
        ('[[files]]\nname = "x"\nurls = ["https://me:secret@example.org/x"]', "must not contain a user or a password"),
        ("x = " + "[" * 50_000, "recursion"),
        ("[" + "a." * 50_000 + "b]\nx = 1", "a"),
    ],
)
def test_a_wrong_manifest_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words) as error:
        read(path)
    assert str(path) in str(error.value)
    assert "secret" not in str(error.value)


def test_a_socks_proxy_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with pytest.raises(OSError, match=r"names a SOCKS proxy, which is not supported: name an HTTP proxy$"):
        client(Internet, Deadline(1))


def test_what_is_missing_offline_is_listed_without_signatures() -> None:
    given = File(name="x", sha256="0" * 64, bytes=1, mirror="x", urls=("https://a.example/x?signature=hush",))
    with pytest.raises(OSError, match=r"https://a.example/x") as refused:
        check_offline([given], Sources(offline=True))
    assert "hush" not in str(refused.value)
