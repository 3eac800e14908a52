"""The lifeline: a child process ends when the process that started it is gone, even by kill -9."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the system send SIGTERM to this process when `parent` (its parent's process id) ends. Linux only.

    Raises SystemExit when the parent is gone already.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        raise SystemExit("fluvial: the process that started this worker is gone")
