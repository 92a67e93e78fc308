"""Which Prefect server a run asks, with which credentials, and that the embedded one ends with the run."""

import http.server
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from serving import serving

SETTINGS, OWN = "PHRASEMODELS_PREFECT_API_URL", "PREFECT_API_URL"
# as the command line does: Prefect has read its variables before the services start
ASK = """
import prefect, sys
from phrasemodels.infra import services
from phrasemodels.infra.settings import Settings
from prefect.client.orchestration import get_client
with services.prefect(Settings()) as server:
    services.wait_for(server)
    with get_client(sync_client=True) as client:
        client.read_flow_runs()
        print(client.api_url, flush=True)
    sys.stdin.read()
"""


class Recorder(http.server.BaseHTTPRequestHandler):
    """A server without flow runs, which notes the credentials of each request."""

    def do_GET(self) -> None:
        self.answer("3.8.8")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer([])

    def answer(self, value: object) -> None:
        self.server.asked.append(self.headers.get("Authorization", ""))  # type: ignore[attr-defined]
        self.send_response(200)
        body = json.dumps(value).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def recorder() -> http.server.ThreadingHTTPServer:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.asked = []  # type: ignore[attr-defined]
    return server


def asking(home: Path, **variables: str) -> "subprocess.Popen[str]":
    """Start ASK with a home folder, in which it also runs."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PHRASEMODELS_", "PREFECT_"))}
    inherited |= {"HOME": str(home), "PHRASEMODELS_STORE": str(home / "store"), **variables}
    command = [sys.executable, "-c", ASK]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=inherited, cwd=home, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def answers(url: str) -> bool:
    """Return whether a server answers, if only to refuse."""
    try:
        urllib.request.urlopen(url)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@pytest.mark.parametrize("named", [(), (SETTINGS,), (OWN,), (SETTINGS, OWN)])
def test_a_run_asks_the_server_that_a_variable_names_and_no_other(named: tuple[str, ...], tmp_path: Path) -> None:
    servers = {name: recorder() for name in (SETTINGS, OWN, "profile")}
    with serving(servers[SETTINGS]) as first, serving(servers[OWN]) as second, serving(servers["profile"]) as third:
        urls = {SETTINGS: f"{first}/api", OWN: f"{second}/api"}
        profile = f'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "{third}/api"\nPREFECT_API_KEY = "profile"\n'
        (tmp_path / ".prefect").mkdir()
        (tmp_path / ".prefect" / "profiles.toml").write_text(profile)
        (tmp_path / ".env").write_text(f"PREFECT_API_URL={third}/api\nPREFECT_API_KEY=file\n" if not named else "")
        variables = {name: urls[name] for name in named} | {"PREFECT_API_KEY": "variable"}
        variables["PREFECT_CLIENT_CSRF_SUPPORT_ENABLED"] = "false"
        process = asking(tmp_path, **variables)
        out, errors = process.communicate("")
    assert out, errors
    asked = {name: set(server.asked) for name, server in servers.items()}  # type: ignore[attr-defined]
    wanted = {name: set[str]() for name in servers}
    if named:
        wanted[named[0]] = {"", "Bearer variable"}  # the first request asks whether the server answers
        assert out.strip().rstrip("/") == urls[named[0]]
    assert asked == wanted


def test_the_embedded_server_has_a_password_admits_no_page_and_ends_with_a_killed_run(tmp_path: Path) -> None:
    process = asking(tmp_path)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{url}/admin/version")
    origin = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    asked = urllib.request.Request(f"{url}/flow_runs/filter", headers=origin, method="OPTIONS")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked)
    assert "Access-Control-Allow-Origin" not in refused.value.headers
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until = time.monotonic() + 20
    while answers(url) and time.monotonic() < until:
        time.sleep(0.1)
    assert not answers(url)
