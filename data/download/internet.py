"""Clients for addresses that nobody vouches for: they wait so long and no longer, whatever comes meanwhile.

`Internet` reaches what is on the internet, and nothing nearer. A name is looked up once, and the connection goes to an
address that was checked: asked again, it might mean another.
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


class Patience:
    """For how many seconds a client waits for the next piece of a body; early hints and parts of headers are none."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        self.until = time.monotonic() + self.seconds

    def check(self) -> None:
        """An httpx.ReadTimeout if there is none left."""
        if time.monotonic() > self.until:
            raise httpx.ReadTimeout(f"nothing of a file came for {self.seconds:g} seconds")


class _Patient:
    """A network of httpcore, or a connection in it, that is used as long as there is patience."""

    def __init__(self, inner: Any, patience: Patience) -> None:
        self.inner, self.patience = inner, patience

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def connect_tcp(self, *arguments: Any, **options: Any) -> "_Patient":
        self.patience.check()
        return _Patient(self.inner.connect_tcp(*arguments, **options), self.patience)

    def start_tls(self, *arguments: Any, **options: Any) -> "_Patient":
        return _Patient(self.inner.start_tls(*arguments, **options), self.patience)

    def read(self, *arguments: Any, **options: Any) -> bytes:
        self.patience.check()
        return self.inner.read(*arguments, **options)


class Transport(httpx.HTTPTransport):
    """Connects to any address, or to a proxy, as long as there is patience."""

    def __init__(self, patience: Patience, proxy: str | None = None) -> None:
        super().__init__(proxy=proxy)
        pool: Any = self._pool
        pool._network_backend = _Patient(pool._network_backend, patience)  # httpx has no parameter for it
        self.proxy = proxy


def client(transport: type[Transport], patience: Patience) -> httpx.Client:
    """A client whose requests and redirections all go through such a transport."""
    proxies = get_environment_proxies().items()
    mounts = {what: transport(patience, url) if url else None for what, url in proxies}
    return httpx.Client(transport=transport(patience), mounts=mounts)


class Internet(Transport):
    """Refuses, with a ValueError, what is not on the internet; a proxy looks names up by itself."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        known = addresses(host)
        if private := [one for one in known if not is_public(ipaddress.ip_address(one))]:
            raise ValueError(
                f"{host} is {private[0]}, which is not on the internet; set PHRASEMODELS_PRIVATE=true if that is meant"
            )
        if self.proxy:
            return super().handle_request(request)
        failure: httpx.TransportError = httpx.ConnectError(f"nobody knows {host}")
        for address in known:
            try:
                return super().handle_request(_to(address, host, request))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failure = error
        raise failure


def _to(address: str, host: str, request: httpx.Request) -> httpx.Request:
    """The request to an address; its headers, and the certificate that is asked for, are those of the host."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions=request.extensions | {"sni_hostname": host},
    )


def addresses(host: str) -> list[str]:
    """What a name means, in the order of preference; nothing if nobody knows it."""
    name = unquote(host).lower().partition("%")[0].rstrip(".")  # a proxy may read it with a dot behind it, or a zone
    if name == "localhost" or name.endswith(".localhost"):
        return ["127.0.0.1"]
    try:
        return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(name, None)))
    except (OSError, UnicodeError):
        return []


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is of one machine on the internet; of one that embeds an IPv4 address, whether that is."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    if address in NAT64:
        return is_public(ipaddress.IPv4Address(address.packed[-4:]))
    if inner := address.ipv4_mapped or address.sixtofour:
        return is_public(inner)
    return address.is_global and address in UNICAST  # Teredo's are none
