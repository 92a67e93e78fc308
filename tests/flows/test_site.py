"""The documentation as `make docs` built it, served as plain files and read in a browser."""

import functools
import http.server
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from browser import Browser, chromium
from conftest import PROJECT
from serving import serving

from phrasemodels.models.parser import phrases_alone
from phrasemodels.parsing.parser import Parser

SITE = PROJECT / "build" / "docs"
pytestmark = [
    pytest.mark.skipif(not shutil.which("chromium"), reason="needs Chromium"),
    pytest.mark.skipif(not (SITE / "browser" / "model.onnx").is_file(), reason="needs the site: make docs, with npm"),
]
SENTENCES = [
    "The old man who lives next door has never seen a dog.",
    "Yes",
    "She can't remember the name of the extraordinarily-well-known antidisestablishmentarianist!",
    "I said that we should go to Kraków, but they didn't listen to me and left at 10:30.",
]
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site from a plain server of files."""
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))) as url:
        yield url


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium("chromium", tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def test_local_links_lead_to_files_of_the_site() -> None:
    dead = []
    for page in PAGES:
        for link in re.findall(r"""<[^>]*\s(?:href|src)=["']?([^"'\s>]+)""", (SITE / page).read_text(encoding="utf-8")):
            path = unquote(re.sub("[#?].*", "", link))
            start = SITE if path.startswith("/") else (SITE / page).parent
            if path and not re.match(r"[a-z]+:|//", link) and not (start / path.lstrip("/")).exists():
                dead.append((page, link))
    assert not dead


def until(browser: Browser, expression: str, seconds: float = 120) -> None:
    """Wait until an expression in the page is true."""
    end = time.monotonic() + seconds
    while not browser.ask(expression):
        told = browser.ask("document.getElementById('status').textContent")
        assert time.monotonic() < end and "could not" not in told, told
        time.sleep(0.05)


def test_scores_and_phrases_in_the_browser_are_those_of_torch(browser: Browser, address: str, tmp_path: Path) -> None:
    browser.visit(f"{address}/try.html")
    asked = """(async () => {
        const parser = await import("./browser/parser.js"), answers = [];
        for (const text of %s) {
            const words = parser.words(text), {attention, spans} = await parser.scores(words);
            const plain = (part) => Array.from(part, (inner) => inner.length === undefined ? inner : plain(inner));
            answers.push({words, attention: plain(attention), scores: plain(spans), phrases: parser.phrases(spans)});
        }
        return answers;
    })()"""
    answer = browser.call(
        "Runtime.evaluate", expression=asked % json.dumps(SENTENCES), awaitPromise=True, returnByValue=True
    )
    parser = Parser.load()
    for text, found in zip(SENTENCES, answer["result"]["value"], strict=True):
        assert found["words"] == [word.form for sentence in parser.split(text) for word in sentence]
        attention = parser.attention(found["words"])[1]
        np.testing.assert_allclose(found["attention"], attention, atol=1e-4)
        batch = parser._batch([found["words"]])
        with torch.no_grad():
            scores = parser.fused.span_scores(parser.fused.encode(batch)[1])[0]
        upper = torch.ones(scores.shape[:2]).triu().bool()
        torch.testing.assert_close(torch.tensor(found["scores"])[upper], scores[upper], atol=1e-4, rtol=0)
        cells = parser.fused.parse(batch, phrases_alone).cells[0].tolist()
        assert {(p["first"], p["last"], p["label"]) for p in found["phrases"]} == {tuple(c) for c in cells if c[2] > 1}


def test_a_sentence_is_typed_and_its_phrases_are_chosen_by_keyboard(browser: Browser, address: str) -> None:
    browser.visit(f"{address}/try.html")
    until(browser, "document.querySelectorAll('#tree text').length > 10")  # the example, at once
    browser.ask("document.getElementById('text').select(); document.getElementById('text').focus()")
    browser.call("Input.insertText", text="The <b> red house doesn't sleep.")
    browser.press("Enter")
    until(browser, "document.getElementById('sentence').textContent.includes('red')")
    drawn = browser.ask("[...document.querySelectorAll('#tree text')].map(node => node.textContent)")
    assert {"NP", "VP", "red", "sleep"} <= set(drawn)
    shown = browser.ask("[...document.querySelectorAll('#sentence span')].map(word => word.textContent)")
    assert shown[:2] == ["The", "<"] and "n't" in shown, "what is typed is text, not markup"
    told = browser.ask("document.getElementById('status').textContent")
    assert "the label attends most to" in told
    browser.ask("document.querySelector('#choices input').focus()")
    browser.press("ArrowDown")
    assert browser.ask("document.querySelectorAll('#choices input')[1].checked")
    assert browser.ask("document.getElementById('status').textContent") != told
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    spoken = [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in nodes if not n["ignored"]]
    assert ("textbox", "English sentence") in spoken and ("button", "Show its phrases") in spoken
    assert ("group", "Phrases") in spoken
    assert any(role == "radio" and "The < b > red house" in name for role, name in spoken), spoken
    assert any(role == "status" for role, _ in spoken)
    assert not browser.heard("Runtime.exceptionThrown")


def test_equations_are_typeset_and_tables_of_verdicts_can_be_filtered(browser: Browser, address: str) -> None:
    for paper in ("000", "001", "002", "003", "004"):
        browser.visit(f"{address}/papers/{paper}.html")
        assert browser.ask("document.querySelectorAll('div.equation .katex-html').length") == 1
        assert browser.ask("document.querySelector('.arithmatex') === null")
        assert browser.until("document.fonts.check('16px KaTeX_Main')")
    browser.visit(f"{address}/results/verdicts.html")
    shown = "[...document.querySelectorAll('.filtered tbody tr')].filter(row => row.offsetHeight).length"
    assert browser.until("!!document.querySelector('.filter input')") and browser.ask(shown) > 400
    type_words = "words.value = '003 memn2n'; words.dispatchEvent(new Event('input'))"
    browser.ask(f"(words => {{ {type_words} }})(document.querySelector('.filter input'))")
    few = browser.ask(shown)
    assert 0 < few < 100 and browser.ask("document.querySelector('.filter [role=status]').textContent").startswith(
        f"{few} of"
    )


CUT = """[...document.querySelectorAll("pre code, .md-typeset__scrollwrap, div.equation")]
    .filter(part => part.clientWidth && part.scrollWidth > part.clientWidth + 1).length"""


def test_no_page_needs_another_server_or_is_wider_than_a_screen(browser: Browser, address: str) -> None:
    wide, elsewhere = [], []
    for width in (1280, 420):
        browser.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        for page in PAGES:
            browser.visit(f"{address}/{page}")
            if browser.ask(f"document.documentElement.scrollWidth > innerWidth || {CUT} > 0"):
                wide.append((page, width, browser.ask("document.documentElement.scrollWidth")))
            requested = {event["request"]["url"] for event in browser.heard("Network.requestWillBeSent")}
            elsewhere += [url for url in requested if not url.startswith((address, "data:", "blob:"))]
    browser.call("Emulation.clearDeviceMetricsOverride")
    assert not elsewhere
    assert not wide
