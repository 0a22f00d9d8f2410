"""The command `samplerkit`."""

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
from samplerkit.cli.edit import edit
from samplerkit.cli.lookups import at, seen, state, when
from samplerkit.cli.opening import as_command
from samplerkit.cli.plan import plan, plot
from samplerkit.cli.storage import catalogue, index, lengths, pack
from samplerkit.errors import SamplerkitError

# In the order in which a new user needs them, under the headings of the help.
_COMMANDS = {
    "Commands": (demo, validate, schema, plan, plot, check, at, when, seen, state, edit),
    "Commands that prepare files": (lengths, pack, index, catalogue),
}

_STDOUT = 1
_STDOUT_ERRORS = {errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF, errno.EDQUOT}

# typer takes this class from click, or from its own copy of click, and does not export it.
_UsageError: Any = typer.BadParameter.__bases__[0]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _show_version(requested: bool) -> None:
    if requested:
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
        # File names may be bytes that are not valid text; as backslash escapes they can be printed in JSON.
        sys.stdout.reconfigure(errors="backslashreplace")


for _heading, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(rich_help_panel=_heading)(as_command(_command))


def main() -> None:
    """Runs the command line; a user error is printed as one line with a hint.

    Exits with 0 on success, 1 if something was found or refused, 2 if the command cannot run as given.
    """
    if sys.stdout is None:
        _end_without_stdout("is closed")
    try:
        with warnings.catch_warnings():
            # torch compares the workers with the CPUs of this machine, which seldom runs the job itself.
            warnings.filterwarnings("ignore", "This DataLoader will create")
            # If torch cannot read the pickles of a checkpoint, that is an error of its own.
            warnings.filterwarnings("ignore", "Detected pickle protocol")
            code = app(prog_name="samplerkit", standalone_mode=False) or 0
            # Flush here, and not at interpreter exit, so that a full disk can be reported as an error.
            sys.stdout.flush()
            sys.exit(code)
    except OSError as error:
        if error.errno not in _STDOUT_ERRORS or error.filename is not None:
            raise
        _end_without_stdout(os.strerror(error.errno))
    except typer.Abort:
        sys.exit(130)
    except _UsageError as error:
        _show_usage_error(error)
        sys.exit(2)
    except SamplerkitError as error:
        # Notes name for instance the config file of the mistake.
        notes = [note.removeprefix("samplerkit: ") for note in getattr(error, "__notes__", [])]
        typer.echo("; ".join([f"samplerkit: {error}", *notes]), err=True)
        sys.exit(2)


def _end_without_stdout(reason: str) -> NoReturn:
    """Reports on standard error that standard output cannot be written, and exits."""
    # The rest of the buffer must not fail a second time at interpreter exit.
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
