"""The command `phrasemodels`: its groups of commands, and how errors end it.

Every command imports what it needs when it is called, so that --help is quick.
"""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from phrasemodels.flows.cli import corpora, machine, models, parse, results, run
from phrasemodels.flows.cli.terminal import clean, one_line
from phrasemodels.infra.signals import ENDED, Stopped, noting_error_line
from phrasemodels.project import check_working_folder

# Click's UsageError, which newer versions of Typer bring themselves.
USAGE_ERROR: type[Exception] = cast("type[Exception]", typer.BadParameter.__mro__[1])


@contextmanager
def _usage_in_one_line() -> Iterator[None]:
    """End the program with one line and exit status 2 if the arguments are wrong; without arguments help is shown as it is."""
    try:
        yield
    except USAGE_ERROR as found:
        error: Any = found
        if error.ctx is None or type(error).__name__ == "NoArgsIsHelpError":
            raise
        path, message = error.ctx.command_path, error.format_message().rstrip(".").replace(". Did", ": did")
        told = f"{path}: {message[:1].lower()}{message[1:]}; `{path} --help` says more"
        print(clean(" ".join(told.split())), file=sys.stderr)
        sys.exit(2)


class Commands(TyperGroup):
    """The commands, whose usage errors are one line."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _usage_in_one_line():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _usage_in_one_line():
            return super().invoke(ctx)


app = typer.Typer(
    cls=Commands,
    help="Phrase-level attention: five papers, from raw corpora to a verdict on every number they printed.\n\n"
    "Begin with [bold]phrasemodels reproduce[/bold]: it needs nothing from outside and takes a few minutes.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog="Results go to stdout, progress to stderr. Settings: PHRASEMODELS_STORE, _MIRROR, _SUPPLIED, _PARSERS, _OFFLINE, "
    "_MLFLOW_URI, _RAY_ADDRESS, _PREFECT_API_URL, _CPUS; PHRASEMODELS_DEBUG=1 shows tracebacks.",
)
FILES = (run, results, models, parse, machine)
GROUPS = {"corpora": corpora.app, "parsers": parse.parsers, "store": machine.store}
# Commands and groups by what one wants to do: first what one needs every day.
PANELS: dict[str, tuple[str, ...]] = {
    "Every day": ("reproduce", "plan", "verdicts", "sql", "judge", "train", "predict", "parse", "init", "corpora"),
    "Advanced: runs and results": ("experiments", "keep", "prepare", "report", "trace", "compare-settings"),
    "Advanced: models": ("draw", "export", "serve", "parsers"),
    "Advanced: this machine": ("doctor", "store"),
}


def _add_commands() -> None:
    """Add all commands and groups to the app, panel by panel."""
    known = {info.name or info.callback.__name__: info for file in FILES for info in file.app.registered_commands}
    for panel, names in PANELS.items():
        for name in names:
            if name in GROUPS:
                app.add_typer(GROUPS[name], name=name, rich_help_panel=panel)
            else:
                known[name].rich_help_panel = panel
                app.registered_commands.append(known[name])


_add_commands()

# Services by the package of an error. Not Ray: an error that it raises may be a mistake in a layer, and needs its traceback.
PREFECT_ERRORS = ("Failed to reach API", "Timed out while attempting to connect to ephemeral Prefect")  # RuntimeErrors
SERVICES = {"mlflow": "MLflow", "sqlalchemy": "database of MLflow:", "httpx": "Prefect", "prefect": "Prefect"}


def _version(wanted: bool) -> None:
    if wanted:
        import phrasemodels

        print(phrasemodels.__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version, and end.")
    ] = False,
) -> None:
    check_working_folder()


def main() -> None:
    """Run the command line. A user's mistake ends it with one line and exit status 1, or 2 if the arguments are wrong."""
    try:
        with noting_error_line():
            app(standalone_mode=True)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; {ENDED}")
    except Stopped:
        sys.exit(1)
    except SystemExit as end:
        if end.code == signal.SIGTERM:  # how Ray answers the signal while the services start
            sys.exit(f"terminated; {ENDED}")
        if end.code == 128 + signal.SIGINT:  # how Typer answers the signal
            print("interrupted", file=sys.stderr)
        raise
    except (ValueError, OSError) as error:
        if os.environ.get("PHRASEMODELS_DEBUG"):
            raise
        notes = getattr(error, "__notes__", [])
        told = str(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            told = f"{error.filename}: {error.strerror[0].lower()}{error.strerror[1:]}"
        elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
            told = "the disk of the output is full: free some space, and try again"
        elif isinstance(error, shutil.Error):  # a list of all files that were not copied
            _, place, why = error.args[0][0]
            told = f"{place}: {why}"
        elif isinstance(error, UnicodeEncodeError):
            told = f"{error.object[max(0, error.start - 40) : error.end]!r} is not UTF-8: write it again"
        sys.exit(one_line(f"phrasemodels: {told}" + (f" ({'; '.join(notes)})" if notes else "")))
    except Exception as error:
        service = SERVICES.get(type(error).__module__.split(".")[0])
        if str(error).startswith(PREFECT_ERRORS):
            service = "Prefect"
        if service is None or os.environ.get("PHRASEMODELS_DEBUG"):
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        sys.exit(f"phrasemodels: {service} request failed: {clean(first)}; PHRASEMODELS_DEBUG=1 shows the traceback")
