"""The redactor of a data folder: its key comes from the settings, else from a file that is made once.

Whoever uses one data folder shares its key. On other machines FLUVIAL_REDACTION_KEY gives publishers and workers the
same one; where keys differ, equal secrets of different machines do not look equal.
"""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

from fluvial.processors.redact import Redactor
from fluvial.settings import Settings

KEY_FILE = "redaction.key"


def redactor_of(settings: Settings) -> Redactor:
    """The redactor that these settings ask for. Raises OSError where the key's file cannot be made or read."""
    given = settings.redaction_key
    key = given.get_secret_value() if given else key_in(settings.data)
    return Redactor(
        hashlib.blake2b(key.encode(), digest_size=32, person=b"redaction").digest(), settings.redact_personal
    )


def key_in(folder: Path) -> str:
    """The key of a data folder, made now if there is none: 64 hexadecimal digits that only the owner may read.

    However many processes begin at once, they get the same one. Raises OSError.
    """
    file = folder / KEY_FILE
    with suppress(FileNotFoundError):
        return file.read_text("ascii").strip()
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f".{KEY_FILE}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(f"{secrets.token_hex(32)}\n")
            out.flush()
            os.fsync(out.fileno())
        with suppress(FileExistsError):
            os.link(made, file)  # the first wins; a reader never sees half a key
    finally:
        made.unlink(missing_ok=True)
    return file.read_text("ascii").strip()
