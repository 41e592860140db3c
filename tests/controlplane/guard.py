"""Run a program that ends with its parent: python -I -S guard.py PARENT_PID PROGRAM [ARGUMENT...].

The kernel kills the program (SIGKILL) when the thread that started it ends, however that happens;
the request for it outlives exec. The process id stays the same.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, then become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it ended before the kernel knew
        sys.exit("the parent has ended")
    os.execv(program[0], program)  # noqa: S606 - becoming the program is what this is for


if __name__ == "__main__":
    main()
