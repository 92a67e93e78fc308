"""HTTP clients for untrusted URLs, with a deadline that no server can extend.

`Internet` connects to public addresses only. It looks a host name up once and connects to an address that it has
checked: a second lookup might give another one.
"""

import ipaddress
import socket
import time
from typing import Any
from urllib.parse import unquote

import httpx
from httpx._utils import get_environment_proxies

UNICAST = ipaddress.ip_network("2000::/3")
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Deadline:
    """The time until which the next piece of a body must arrive; early hints and partial headers do not count."""

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
    """A network backend of httpcore, or one of its connections, that checks the deadline before it connects or reads."""

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
    """Connects to any address, or to a proxy, until the deadline."""

    def __init__(self, deadline: Deadline, proxy: str | None = None) -> None:
        super().__init__(proxy=proxy)
        pool: Any = self._pool
        pool._network_backend = _WithDeadline(pool._network_backend, deadline)  # httpx has no parameter for it
        self.proxy = proxy


def client(transport: type[Transport], deadline: Deadline) -> httpx.Client:
    """Return a client whose requests, also those to proxies, go through this kind of transport."""
    proxies = get_environment_proxies().items()
    mounts = {pattern: transport(deadline, url) if url else None for pattern, url in proxies}
    return httpx.Client(transport=transport(deadline), mounts=mounts)


class Internet(Transport):
    """Refuses hosts with addresses that are not public. A proxy looks host names up by itself."""

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
    """Return the request with an address in place of the host; headers and the expected certificate are the host's."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions | {"sni_hostname": host},
    )


def addresses(host: str) -> list[str]:
    """Look up the addresses of a host, in the order of preference; an empty list if it has none."""
    name = unquote(host).lower().partition("%")[0].rstrip(".")  # proxies accept a trailing dot and a zone
    if name == "localhost" or name.endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(name, None)))
    except (OSError, UnicodeError):
        return []


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is of one machine on the internet; an address that embeds an IPv4 address is as public as that."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    if address in NAT64:
        return is_public(ipaddress.IPv4Address(address.packed[-4:]))
    if inner := address.ipv4_mapped or address.sixtofour:
        return is_public(inner)
    return address.is_global and address in UNICAST  # false for Teredo addresses
