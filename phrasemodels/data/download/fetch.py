"""Fetch a file of a manifest from mirror folders or its URLs or build it from upstream files.

These are tried in this order. Downloads are streamed and resumed. A file is decompressed (.gz, .xz), verified against
the digest of the manifest and renamed at the end. URLs are untrusted. No server can extend the deadline of a client.
`Internet` connects only to public addresses. It connects to the checked address. A second lookup might give another
one.
"""

import gzip
import hashlib
import ipaddress
import lzma
import os
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO
from urllib.parse import unquote

import httpx
from httpx._utils import get_environment_proxies
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from phrasemodels.data.download.archives import extract
from phrasemodels.data.download.manifest import (
    VARIABLE,
    Concatenation,
    File,
    FirstLines,
    Manifest,
    Member,
    ParserManifest,
    Sources,
    copy_user_files,
    how_to_supply,
)
from phrasemodels.data.store.artifacts import LOCAL_DISK_ERRORS, atomic_replace

UNICAST = ipaddress.ip_network("2000::/3")
# Addresses that are not of one machine on the internet; `is_global` knows more of them in later versions of Python.
SPECIAL = [
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/3", "2001::/23", "2001:db8::/32", "3fff::/20",
    )
]  # fmt: skip
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Deadline:
    """The time limit of the next piece of a body. Early hints and partial headers do not count."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        self.until = time.monotonic() + self.seconds

    def check(self) -> None:
        """Raise httpx.ReadTimeout once the deadline is over."""
        if time.monotonic() > self.until:
            raise httpx.ReadTimeout(f"no data of the file for {self.seconds:g} seconds")


class _WithDeadline:
    """A network backend (or connection) of httpcore with a deadline for each connection and read."""

    def __init__(self, inner: Any, deadline: Deadline) -> None:
        self.inner, self.deadline = inner, deadline

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def connect_tcp(self, *arguments: Any, **options: Any) -> "_WithDeadline":
        self.deadline.check()
        return _WithDeadline(self.inner.connect_tcp(*arguments, **options), self.deadline)

    def start_tls(self, *arguments: Any, **options: Any) -> "_WithDeadline":
        return _WithDeadline(self.inner.start_tls(*arguments, **options), self.deadline)

    def read(self, *arguments: Any, **options: Any) -> bytes:
        self.deadline.check()
        return self.inner.read(*arguments, **options)


class Transport(httpx.HTTPTransport):
    """Connects to any address or to a proxy until the deadline."""

    def __init__(self, deadline: Deadline, proxy: str | None = None) -> None:
        super().__init__(proxy=proxy)
        pool: Any = self._pool
        pool._network_backend = _WithDeadline(pool._network_backend, deadline)  # httpx has no parameter for it
        self.proxy = proxy


def client(transport: type[Transport], deadline: Deadline) -> httpx.Client:
    """Return a client with this kind of transport for all requests, also to proxies. OSError: a proxy is of SOCKS."""
    proxies = get_environment_proxies().items()
    try:
        mounts = {pattern: transport(deadline, url) if url else None for pattern, url in proxies}
    except ImportError:
        raise OSError(
            "ALL_PROXY or HTTPS_PROXY names a SOCKS proxy, which is not supported: name an HTTP proxy"
        ) from None
    return httpx.Client(transport=transport(deadline), mounts=mounts)


class Internet(Transport):
    """Refuses hosts with non-public addresses. A proxy looks host names up by itself."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        known = addresses(host)
        if private := [address for address in known if not is_public(ipaddress.ip_address(address))]:
            raise ValueError(
                f"{host} is {private[0]}, which is not on the internet; set PHRASEMODELS_PRIVATE=true to allow it"
            )
        if self.proxy:
            return super().handle_request(request)
        failure: httpx.TransportError = httpx.ConnectError(f"{host} has no address")
        for address in known:
            try:
                return super().handle_request(_to(address, host, request))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure


def _to(address: str, host: str, request: httpx.Request) -> httpx.Request:
    """Return the request with an address in place of the host. Headers and the expected certificate are the host's."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions | {"sni_hostname": host},
    )


def addresses(host: str) -> list[str]:
    """Look up the addresses of a host, in the order of preference. The list may be empty."""
    name = unquote(host).lower().partition("%")[0].rstrip(".")  # proxies accept a trailing dot and a zone
    if name == "localhost" or name.endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(name, None)))
    except (OSError, UnicodeError):
        return []


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is of one machine on the internet. An embedded IPv4 address must be public, too."""
    if any(address in network for network in SPECIAL):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global
    if address in NAT64:
        return is_public(ipaddress.IPv4Address(address.packed[-4:]))
    if inner := address.ipv4_mapped or address.sixtofour:
        return is_public(inner)
    return address.is_global and address in UNICAST  # false for Teredo addresses


MIRROR = "PHRASEMODELS_MIRROR"  # the setting that names the folder of corpora
ATTEMPTS = 5
CHUNK = 1 << 16
PATIENCE, SLOWEST = 60.0, 1000.0  # seconds without data; bytes a second, on average, once these seconds are over
REDIRECTS = 10
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": partial(lzma.open, format=lzma.FORMAT_XZ)}
AGAIN = "download the file again, or write the sha256 and the bytes of yours, unpacked, into the manifest"
# MemoryError: an xz file states how much memory its decoder needs
BROKEN = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, MemoryError)


class InterruptedDownloadError(Exception):
    """The download broke off. Another attempt may succeed."""


def fetch(file: File, target: Path, sources: Sources, variable: str = MIRROR) -> str:
    """Fetch a file to `target` and return its path or URL of origin.

    Args:
        variable: Name of the setting for the folder of such files.

    Raises:
        OSError: No place has the file. The message names each place and its error.
    """
    errors = []
    for place, put in _places(file, sources):
        try:
            put(target)
            return place
        except (OSError, ValueError, InterruptedDownloadError, httpx.InvalidURL) as error:
            if isinstance(error, OSError) and error.errno in LOCAL_DISK_ERRORS:
                raise
            errors.append(f"{place}: {error}")
    if sources.offline:
        errors.append("offline")
    errors = errors or [f"{mirror / file.mirror}: not a file" for mirror in sources.mirrors] or ["no server has it"]
    places = " or ".join(str(mirror / file.mirror) for mirror in sources.mirrors)
    places = places if sources.mirrors and variable == MIRROR else f"{_folder(variable)}/{file.mirror}"
    raise OSError(f"{file.name} cannot be fetched ({'; '.join(errors)}); put it at {places}")


def fetch_all(files: Iterable[File], target: Path, sources: Sources, variable: str = MIRROR) -> dict[str, str]:
    """Fetch files to paths below `target`. Return the path or URL of origin of each.

    OSError: as of `fetch`. Offline, it names all missing files.
    """
    files, origins = list(files), {}
    check_offline(files, sources, variable)
    for file in files:
        (target / file.name).parent.mkdir(parents=True, exist_ok=True)
        origins[file.name] = fetch(file, target / file.name, sources, variable)
    return origins


def check_offline(files: Iterable[File], sources: Sources, variable: str = MIRROR) -> None:
    """Check that files are in a mirror folder, for use without a network.

    Args:
        variable: Name of the setting for the folder of such files.

    Raises:
        OSError: Files are missing. The message names all of them with their places.
    """
    if sources.offline and (absent := missing(files, sources)):
        places = "\n  ".join(
            f"{_folder(variable)}/{file.mirror}  ({', '.join(map(_without_query, file.urls)) or 'no URL'})"
            for file in absent
        )
        raise OSError(f"offline, and these files are missing; put each at the place named:\n  {places}")


def _folder(variable: str) -> str:
    """Return the folder of a setting, or say that it is not set."""
    return os.environ.get(variable) or f"<the folder that {variable} names>"


def missing(files: Iterable[File], sources: Sources) -> list[File]:
    """Return the files missing from all mirror folders."""
    return [f for f in files if not any((mirror / f.mirror).is_file() for mirror in sources.mirrors)]


Put = Callable[[Path], None]  # write the file, unpacked and verified, to a path
Save = Callable[[Path, Sources], None]  # write the upstream file, still packed, to a path


def _places(file: File, sources: Sources) -> Iterator[tuple[str, Put]]:
    """Yield the possible places of a file in order, each with a function for fetching the file from there."""
    for mirror in sources.mirrors:
        if (found := mirror / file.mirror).is_file():
            yield str(found), partial(_unpack, file, found)
    if sources.offline:
        return
    for url in file.urls:
        place = _without_query(url)
        suffix = Path(place).suffix if Path(place).suffix in OPENERS else ""
        save = partial(_save, url, 2 * file.bytes + CHUNK)
        yield place, partial(_download, file, save, f"part{suffix}", sources)
    if file.build:
        build = partial(BUILDERS[file.build.transform], file.build, file.bytes)
        yield _without_query(file.build.url), partial(_download, file, build, "part", sources)


def _without_query(url: str) -> str:
    """Return a URL without its query. A query may hold a signature and must not be printed or kept."""
    return url.partition("?")[0]


def _download(file: File, save: Save, name: str, sources: Sources, target: Path) -> None:
    """Download to a temporary folder, then unpack to `target`. So one place never resumes the file of another."""
    with TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        part = Path(folder, name)
        save(part, sources)
        _unpack(file, part, target)


def _concatenate(build: Concatenation, size: int, part: Path, sources: Sources) -> None:
    piece = part.with_name("piece")
    with part.open("wb") as out:
        for name in build.parts:
            _save(build.url.replace("{}", name), size - out.tell(), piece, sources)
            out.write(piece.read_bytes())
            piece.unlink()


def _first_lines(build: FirstLines, size: int, part: Path, sources: Sources) -> None:
    whole = part.with_name("whole")
    _save(build.url, 100 * size, whole, sources)
    with whole.open("rb") as source, part.open("wb") as out:
        out.writelines(islice(source, build.lines))


def _member(build: Member, size: int, part: Path, sources: Sources) -> None:
    archive = part.with_name("archive")
    _save(build.url, build.most_bytes, archive, sources)
    extract(archive, build.member, part, size)


BUILDERS: dict[str, Callable[..., None]] = {"concatenate": _concatenate, "first_lines": _first_lines, "member": _member}


def _save(url: str, most: int, part: Path, sources: Sources) -> None:
    retrying = Retrying(
        retry=retry_if_exception_type(InterruptedDownloadError),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(initial=sources.wait, max=60, jitter=sources.wait),
        reraise=True,
    )
    retrying(_stream, url, part, most, Transport if sources.private else Internet)


def _stream(url: str, part: Path, most: int, transport: type[Transport]) -> None:
    """Download a URL to `part`, from the last byte of an earlier attempt.

    InterruptedDownloadError: another attempt may succeed. ValueError: it cannot.
    """
    have, started = part.stat().st_size if part.exists() else 0, time.monotonic()
    deadline = Deadline(PATIENCE)
    headers = {"Range": f"bytes={have}-"} if have else {}
    headers["Accept-Encoding"] = "identity"
    try:
        with (
            client(transport, deadline) as http,
            _answer(http, http.build_request("GET", url, headers=headers, timeout=30)) as response,
        ):
            if have and response.status_code == 416:  # the part is complete
                return
            if response.status_code in (408, 425, 429) or response.status_code >= 500:
                raise InterruptedDownloadError(f"HTTP {response.status_code}")
            if not response.is_success:
                raise ValueError(f"HTTP {response.status_code}")
            resumed = response.status_code == 206
            total = before = have if resumed else 0
            with part.open("ab" if resumed else "wb") as out:
                for chunk in response.iter_raw():  # raw: a false Content-Encoding is not decoded
                    total += len(chunk)
                    if total > most:
                        raise ValueError(f"more than {most} bytes, the manifest states fewer; nothing was kept")
                    out.write(chunk)
                    if (waited := time.monotonic() - started) > PATIENCE and total - before < SLOWEST * waited:
                        raise InterruptedDownloadError(f"slower than {SLOWEST:.0f} bytes a second")
                    deadline.renew()
    except httpx.RequestError as error:
        raise InterruptedDownloadError(str(error) or type(error).__name__) from error


@contextmanager
def _answer(client: httpx.Client, request: httpx.Request) -> Iterator[httpx.Response]:
    """Follow redirects and yield the final response. Bodies of redirects may be endless and are not read."""
    for _ in range(REDIRECTS + 1):
        with closing(client.send(request, stream=True, follow_redirects=False)) as response:
            if response.next_request is None:
                yield response
                return
            request = response.next_request
    raise ValueError(f"more than {REDIRECTS} redirects")


def _unpack(file: File, packed: Path, target: Path) -> None:
    """Decompress, verify and rename a file to `target`. ValueError: another content. Nothing is kept."""
    try:
        with (
            closing(OPENERS.get(packed.suffix, open)(packed, "rb")) as source,
            atomic_replace(target) as temporary,
            temporary.open("wb") as out,
        ):
            digest = _copy(source, out, file.bytes)
            if digest != file.sha256:
                raise ValueError(f"sha256 is {digest}, the manifest states {file.sha256}; {AGAIN}")
    except BROKEN as error:
        raise ValueError(f"truncated or not a {packed.suffix} file ({error!r}); download the file again") from error


def _copy(source: BinaryIO, out: BinaryIO, most: int) -> str:
    """Copy a stream and return its sha256. ValueError: more than `most` bytes, for example of a decompression bomb."""
    digest, total = hashlib.sha256(), 0
    while chunk := source.read(CHUNK):
        total += len(chunk)
        if total > most:
            raise ValueError(f"holds more than the {most} bytes of the manifest; {AGAIN}")
        digest.update(chunk)
        out.write(chunk)
    return digest.hexdigest()


def free_space(folder: Path, needed: int) -> None:
    """Check the space on a disk before anything is written. OSError: fewer than `needed` bytes are free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{folder} has {free >> 20} MiB free and {needed >> 20} MiB are needed: "
            "free some space, or choose another folder with PHRASEMODELS_STORE"
        )


def obtain(manifest: Manifest, target: Path, sources: Sources) -> dict[str, str]:
    """Fetch every file of a corpus to a path below `target`. Return the path or URL of origin of each.

    User files may be missing if the corpus has other files.

    Raises:
        ValueError: A file has another content.
        OSError: A file cannot be fetched or there are no files. The message holds instructions.
    """
    origins = fetch_all(manifest.files, target, sources)
    for wanted in manifest.sources:
        origins |= {name: str(path) for name, path in copy_user_files(manifest, wanted, sources, target).items()}
    if not origins:
        raise OSError(how_to_supply(manifest, manifest.sources[0]))
    return origins


def obtain_parser(manifest: ParserManifest, target: Path, sources: Sources) -> dict[str, str]:
    """Fetch every file to a path below `target`. Return the path or URL of origin of each.

    OSError: a file cannot be fetched. The message holds the instructions of the manifest.
    """
    try:
        return fetch_all(manifest.files, target, sources, VARIABLE)
    except OSError as error:
        raise OSError(f"{error}. {manifest.instructions}".strip()) from error
