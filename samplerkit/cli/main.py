"""The command `samplerkit`."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from samplerkit import __version__
from samplerkit.cli.check import check, schema, validate
from samplerkit.cli.demo import demo
from samplerkit.cli.demo_training import LaunchError
from samplerkit.cli.edit import edit
from samplerkit.cli.opening import described
from samplerkit.cli.plan import plan
from samplerkit.cli.plot import plot
from samplerkit.cli.seen import seen, state
from samplerkit.cli.storage import catalogue, index, lengths, pack
from samplerkit.cli.when import at, when
from samplerkit.errors import SamplerkitError

# The commands stand in the order in which they are met.
_COMMANDS = (
    demo,
    validate,
    schema,
    plan,
    plot,
    check,
    at,
    when,
    seen,
    state,
    edit,
    lengths,
    pack,
    index,
    catalogue,
)

_STDOUT = 1
_OF_STDOUT = {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT}

# typer has it from click, or from its own copy of click, and does not name it.
_UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(
    help="The data order of a training run, as a value.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"samplerkit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """The data order of a training run, as a value."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files may be bytes that are no text; so written, they are right in JSON.
        sys.stdout.reconfigure(errors="backslashreplace")


for _command in _COMMANDS:
    app.command()(described(_command))


def main() -> None:
    """Runs the command line; a mistake of the user's is one line that says how to fix it.

    Exits with 0 if all is well, 1 if something was found or refused, 2 if the command cannot be run as asked.
    """
    if sys.stdout is None:
        _end_without_stdout("is closed")
    try:
        with warnings.catch_warnings():
            # The machine that plans a job is seldom the one that runs it.
            warnings.filterwarnings("ignore", "This DataLoader will create")
            code = app(prog_name="samplerkit", standalone_mode=False) or 0
            # Here, and not when the interpreter ends: a full disk is then an error that can be told.
            sys.stdout.flush()
            sys.exit(code)
    except OSError as error:
        if error.errno not in _OF_STDOUT or error.filename is not None:
            raise
        _end_without_stdout(os.strerror(error.errno))
    except SystemExit:
        # What click does, without a word, where a pipe is closed.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            _end_without_stdout(os.strerror(errno.EPIPE))
        raise
    except typer.Abort:
        sys.exit(130)
    except _UsageError as error:
        _show_usage_error(error)
        sys.exit(2)
    except LaunchError as error:
        typer.echo(f"{error.report.rstrip()}\n\nsamplerkit: {error}", err=True)
        sys.exit(1)
    except SamplerkitError as error:
        # A note says in which config file a mistake stands.
        line = "; ".join([f"samplerkit: {error}", *getattr(error, "__notes__", [])])
        typer.echo(line, err=True)
        sys.exit(2)


def _end_without_stdout(reason: str) -> NoReturn:
    """Says that nothing more can be said, and ends."""
    # What is left in the buffer must not fail a second time when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
    typer.echo(f"samplerkit: standard output: {reason}", err=True)
    sys.exit(1)


def _show_usage_error(error: Any) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    command = "samplerkit" if error.ctx is None else error.ctx.command_path
    message = " ".join(error.format_message().split())
    typer.echo(f"samplerkit: {message.removesuffix('.')}; see {command} --help", err=True)


if __name__ == "__main__":
    main()
