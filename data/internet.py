"""A client for addresses that nobody vouches for: it reaches what is on the internet, and nothing nearer.

A name is looked up once, and the connection goes to an address that was checked: asked again, it might mean another.
"""

import ipaddress
import socket

import httpx
from httpx._utils import get_environment_proxies

UNICAST = ipaddress.ip_network("2000::/3")
NAT64 = ipaddress.ip_network("64:ff9b::/96")


def client() -> httpx.Client:
    """A client that refuses, with a ValueError, requests and redirections to what is not on the internet."""
    proxies = get_environment_proxies().items()
    return httpx.Client(transport=Internet(), mounts={what: Internet(url) if url else None for what, url in proxies})


class Internet(httpx.HTTPTransport):
    """Connects to addresses that it has checked, or to a proxy, which looks names up by itself."""

    def __init__(self, proxy: str | None = None) -> None:
        super().__init__(proxy=proxy)
        self.proxy = proxy

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        known = addresses(host)
        if private := [one for one in known if not is_public(ipaddress.ip_address(one))]:
            raise ValueError(
                f"{request.url}: {host} is {private[0]}, which is not on the internet; "
                "set PHRASEMODELS_PRIVATE=true if that is meant"
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
    try:
        return list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, None)))
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
