"""The command ``aiops``: one module per verb, and what every verb's errors become.

Exit codes: 0 ok, 1 run-time failure, 2 usage or configuration, 3 cannot connect, 4 rejected, 5 target not reached,
130 SIGINT, 143 SIGTERM after a clean drain.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import click

from aiops import __version__
from aiops.cli.bench import bench
from aiops.cli.demo import demo
from aiops.cli.lab import lab
from aiops.cli.pull import pull
from aiops.cli.run import TargetMissed
from aiops.cli.serve import serve
from aiops.cli.status import status
from aiops.errors import AiopsError, ConfigError, ConnectFailed, Rejected, VersionMismatch

# The first kind that fits decides.
_EXIT_CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConfigError, 2),
    (ConnectFailed, 3),
    (Rejected, 4),
    (VersionMismatch, 4),
    (TargetMissed, 5),
    (AiopsError, 1),
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aiops")
@click.option("-v", "--verbose", count=True, help="Log more to stderr; twice for debugging.")
@click.option("-q", "--quiet", is_flag=True, help="Log errors only.")
def cli(verbose: int, quiet: bool) -> None:
    """A parameter server for training across sites."""
    level = logging.ERROR if quiet else logging.WARNING - 10 * min(verbose, 2)
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


for verb in (serve, status, pull, demo, bench, lab):
    cli.add_command(verb)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: What stands behind ``aiops``; the process's own unless given.
    """
    return exit_code(cli, arguments, name="aiops")


def exit_code(command: click.Command, arguments: Sequence[str] | None, *, name: str) -> int:
    """Run a command and return its exit code; what went wrong is told in one line.

    Args:
        command: Returns an exit code, or something else for 0.
        arguments: What stands behind its name; the process's own if None.
        name: What it is called.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        # A campaign notes what was asked for.
        code = command.main(words, prog_name=name, standalone_mode=False, obj=words)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except AiopsError as error:
        print(f"{name}: {error}", file=sys.stderr)  # noqa: T201
        return next(code for kind, code in _EXIT_CODES if isinstance(error, kind))
    return code if isinstance(code, int) else 0
