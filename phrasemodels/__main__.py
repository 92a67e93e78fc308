"""The command `phrasemodels`, also as `python -m phrasemodels`. Without the pipeline's packages it names their installation."""

import os
import sys

EXTRAS = {"transformers": "pretrained", "s3fs": "s3", "psycopg2": "server", "boto3": "server", "flask_wtf": "server"}
LIGHT = ("parse", "serve")  # the commands for which the extra `parse` is enough


def main() -> None:
    """Run the command line. A missing package, or a closed stdout, ends it with one line."""
    _open_streams()
    try:
        from phrasemodels.flows.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "phrasemodels"):
            raise
        extra = EXTRAS.get(package, "parse" if sys.argv[1:2] and sys.argv[1] in LIGHT else "pipeline")
        sys.exit(f"phrasemodels: {package} is not installed: in a clone of it, pip install '.[{extra}]'")


def _open_streams() -> None:
    """Open closed streams on the null device. Otherwise the next file would get their number, and printed text."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  until the process ends
    if sys.stdout is None:
        sys.exit("phrasemodels: standard output is closed: redirect it to a file, or to /dev/null")


if __name__ == "__main__":
    main()
