"""The files of the page that parses in the browser: the exported parser, and ONNX Runtime Web from npm."""

import logging
import os
import shutil
import subprocess
import warnings
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")


def build(site: Path, work: Path) -> str:
    """Write the page's files into site/browser, and return "", or a reason why there are none.

    work: a folder for what npm installs. package-lock.json pins each package with its digest, which npm checks.
    """
    if not shutil.which("npm"):
        return "npm is missing: the page that parses in the browser does not work in this build; install Node.js"
    work.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, work / name)
    runtime = work / "node_modules" / "onnxruntime-web" / "dist"
    done = work / "installed-lock.json"
    if not done.is_file() or done.read_bytes() != (work / "package-lock.json").read_bytes():
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        if subprocess.run(command, cwd=work, check=False).returncode:
            return f"npm could not install ONNX Runtime Web into {work}: run `npm ci` there to see why"
        shutil.copy(work / "package-lock.json", done)
    target = site / "browser"
    target.mkdir(parents=True, exist_ok=True)
    for name in RUNTIME:
        shutil.copy(runtime / name, target / name)
    _export(target)
    return ""


def _export(target: Path) -> None:
    """Export the English parser without the exporter's remarks."""
    os.environ["TORCH_LOGS"] = "-all"
    for name in ("torch.onnx", "onnxscript"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from browser.export import export

        from phrasemodels.parsing.parser import Parser

        export(target, Parser.load())
