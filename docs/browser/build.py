"""What the site has from npm: equations by KaTeX, which are typeset when the site is built; the page that parses in the
browser, with the exported parser and ONNX Runtime Web; and what the search needs in files. None asks another server."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)


def install(work: Path) -> str:
    """Install the packages of npm in a folder, and return "", or a reason why there are none.

    package-lock.json pins each package with its digest, which npm checks.
    """
    if not shutil.which("npm"):
        return (
            "npm is missing: equations are TeX, and the page that parses in the browser does not work; install Node.js"
        )
    work.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, work / name)
    done = work / "installed-lock.json"
    if not done.is_file() or done.read_bytes() != (work / "package-lock.json").read_bytes():
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        if subprocess.run(command, cwd=work, check=False).returncode:
            return f"npm could not install KaTeX and ONNX Runtime Web into {work}: run `npm ci` there to see why"
        shutil.copy(work / "package-lock.json", done)
    return ""


def typeset(page: str, work: Path) -> str:
    """Return a page whose equations are HTML and MathML. CalledProcessError: one is no TeX."""
    asked = [{"tex": html.unescape(found[2]), "display": found[1] == "div"} for found in EQUATION.finditer(page)]
    if not asked:
        return page
    command = ["node", str(HERE / "equations.mjs"), str(work / "node_modules" / "katex" / "dist" / "katex.mjs")]
    said = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True).stdout
    made = iter(json.loads(said))
    return EQUATION.sub(lambda found: f'<{found[1]} class="equation">{next(made)}</{found[1]}>', page)


def add(site: Path, work: Path) -> None:
    """Write what pages load into the site: style and fonts of KaTeX, ONNX Runtime Web, and the exported parser."""
    katex = work / "node_modules" / "katex"
    fonts = site / "katex" / "fonts"
    fonts.mkdir(parents=True, exist_ok=True)
    shutil.copy(katex / "dist" / "katex.min.css", site / "katex" / "katex.min.css")
    shutil.copy(katex / "LICENSE", site / "katex" / "LICENSE.txt")
    for font in (katex / "dist" / "fonts").glob("*.woff2"):
        shutil.copy(font, fonts / font.name)
    target = site / "browser"
    target.mkdir(parents=True, exist_ok=True)
    for name in RUNTIME:
        shutil.copy(work / "node_modules" / "onnxruntime-web" / "dist" / name, target / name)
    worker = work / "node_modules" / "iframe-worker"
    shutil.copy(worker / "shim" / "index.js", target / "iframe-worker.js")
    shutil.copy(worker / "LICENSE", target / "IFRAME-WORKER-LICENSE.txt")
    from phrasemodels.inference.export import export_parser
    from phrasemodels.parsing.parser import Parser

    export_parser(Parser.load(), target)
