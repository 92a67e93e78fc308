"""The command `phrasemodels`, also as `python -m phrasemodels`. Without the pipeline's packages it says what to install."""

import sys

EXTRAS = {"transformers": "pretrained", "s3fs": "s3", "psycopg2": "server", "boto3": "server", "flask_wtf": "server"}
LIGHT = ("parse", "serve")  # the commands for which the extra `parse` is enough


def main() -> None:
    """Run the command line; a package that is missing ends it with one line."""
    try:
        from phrasemodels.flows.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package in ("", "phrasemodels"):
            raise
        extra = EXTRAS.get(package, "parse" if sys.argv[1:2] and sys.argv[1] in LIGHT else "pipeline")
        sys.exit(f"phrasemodels: {package} is not installed: in a clone of it, pip install '.[{extra}]'")


if __name__ == "__main__":
    main()
