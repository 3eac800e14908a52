"""The Java process of the local broker: it ends when this process ends, even by kill -9."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from fluvial.streams import lifeline

_LEASHED = (
    "import os, sys; sys.path.append(sys.argv[1]); from lifeline import end_with; "
    "end_with(int(sys.argv[2])); os.execv(sys.argv[3], sys.argv[3:])"
)
"""Run by a Python without site-packages: it is a Java after 20 ms."""


def environment() -> dict[str, str]:
    """This process's environment without what would change the Java, and in UTF-8 for the names of folders."""
    changes_java = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH")
    kept = {name: value for name, value in os.environ.items() if name not in changes_java}
    return kept | {"LC_ALL": "C.UTF-8", "MALLOC_ARENA_MAX": "2"}


def on_a_leash(command: Sequence[str], folder: Path, output: Path, lock: int) -> "subprocess.Popen[bytes]":
    """Start `command` in `folder`, its output in a file made anew; it inherits the descriptor `lock`.

    The child asks for the signal before it becomes the command, so nothing of this process runs between fork and exec.
    The system sends it when the *thread* that made the child ends, and a broker may be started from any: the child is
    made by a thread that lives as long as it does. It has its own session: Ctrl-C in a terminal is for the supervisor,
    which ends the workers before the broker.
    """
    born: Future[subprocess.Popen[bytes]] = Future()

    def live() -> None:
        try:
            with output.open("wb") as out:
                process = subprocess.Popen(
                    [sys.executable, "-ISc", _LEASHED, str(Path(lifeline.__file__).parent), str(os.getpid()), *command],
                    cwd=folder,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
        except OSError as error:
            born.set_exception(error)
            return
        born.set_result(process)
        process.wait()

    threading.Thread(target=live, name="kafka", daemon=True).start()
    return born.result()
