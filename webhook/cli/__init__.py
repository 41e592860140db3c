"""The command line: one module for each command, a few lines over the runtime or the core.

`commands` has what a command is called, takes and says in its help; the module of its body is
imported when it runs, so that help pays for nothing, and a command for what it needs only.
Data goes to stdout and messages to stderr; every command ends with an `ExitCode`, which it
returns (nothing returned is `OK`) or reaches through an error of `webhook.cli.exit_codes`.
"""

import sys

try:
    from webhook.cli.app import cli, main
    from webhook.cli.exit_codes import ExitCode, InputError, UnreachableError
except KeyboardInterrupt:  # most of the first tenths of a second of a command
    if sys.stderr is not None:
        sys.stderr.write("Interrupted\n")
    sys.exit(130)  # ExitCode.INTERRUPTED, which may not be there yet

__all__ = ["ExitCode", "InputError", "UnreachableError", "cli", "main"]
