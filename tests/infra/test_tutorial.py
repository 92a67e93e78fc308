"""The commands of docs/tutorials/cluster.md, in their order, on loopback and with ports of their own."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cluster import alive, below, until
from conftest import PROJECT

from phrasemodels.infra.services import free_port

PAGE = PROJECT / "docs" / "tutorials" / "cluster.md"


def commands(shared: Path) -> str:
    """Return the commands of the page, with addresses and folders of this test in place of the page's."""
    text = "\n".join(re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    changes = {"HOST=10.0.0.1": "HOST=127.0.0.1", "/shared/phrasemodels": f"{shared}/shared", "/var/tmp/": f"{shared}/",
               **{port: str(free_port()) for port in ("4200", "5000", "6379")}}  # fmt: skip
    for before, after in changes.items():
        assert before in text, f"the page has no {before}"
        text = text.replace(before, after)
    return text


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_commands_of_the_page_make_a_cluster_and_a_table() -> None:
    home = Path(tempfile.mkdtemp(prefix="pm-"))  # a short path, for Ray's sockets
    checkout = home / "checkout"
    checkout.mkdir()
    for name in ("prefect.yaml", "phrasemodels"):
        (checkout / name).symlink_to(PROJECT / name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PHRASEMODELS_", "PREFECT_"))}
    environment = kept | {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                          "PYTHONPATH": str(PROJECT), "RAY_TMPDIR": str(home)}  # fmt: skip
    *made, end = commands(home).strip().split("\n\n")
    started: list[int] = []
    try:
        done = subprocess.run(["bash", "-euxc", "\n\n".join(made)], env=environment, cwd=checkout, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)  # fmt: skip
        logs = "\n".join(f"== {log}\n{log.read_text()[-1500:]}" for log in (home / "cluster").glob("*.log"))
        started = [pid for file in (home / "cluster").glob("*.pid") for pid in below(int(file.read_text()))]
        assert done.returncode == 0, done.stdout[-5000:] + logs
        assert not re.search("^MISSING", done.stdout, re.MULTILINE), done.stdout
        (record,) = (json.loads(path.read_text()) for path in home.glob("phrasemodels/runs/*.json"))
        assert record["state"] == "completed"
        subprocess.run(["bash", "-euc", end], env=environment, check=True)
        until(lambda: not alive(started), 60)
    finally:
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if "KEEP" not in os.environ:
            shutil.rmtree(home, ignore_errors=True)
