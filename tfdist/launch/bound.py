"""`python bound.py PARENT COMMAND...`: becomes COMMAND, which the kernel kills when the process PARENT dies.

A script of its own, and not a function that runs between fork and exec, because the parent may have
TensorFlow's threads, and a fork of those may hang. Linux only; elsewhere COMMAND merely runs.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent, *command):
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:])
