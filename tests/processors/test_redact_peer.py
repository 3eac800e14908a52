"""Beside detect-secrets: what it recognises is gone after us, and it recognises far less."""

import json
from typing import Any

from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
from support.planted import planted

from fluvial.processors.redact import KEYLESS

GUESSES = {"Base64 High Entropy String", "Hex High Entropy String", "Public IP (ipv4)"}
"""What it flags by entropy alone: every transaction hash is one."""
IDS = {"private_key_id", "TWILIO_ACCOUNT_SID"}
"""Names of accounts and keys that its detectors take for secrets."""


def _recognised(text: str) -> list[tuple[str, str]]:
    detectors: list[Any] = [make() for make in get_mapping_from_secret_type_to_class().values()]
    return [
        (detector.secret_type, secret.secret_value)
        for detector in detectors
        if detector.secret_type not in GUESSES
        for line in text.splitlines()
        for secret in detector.analyze_line(filename="call", line=line, line_number=1)
    ]


def test_detect_secrets_recognises_nothing_in_what_is_left() -> None:
    texts = [one.value if isinstance(one.value, str) else json.dumps(one.value) for one in planted()]
    recognised = sum(bool(_recognised(text)) for text in texts)
    assert 100 < recognised < 150
    for text in texts:
        clean, count = KEYLESS.text(text)
        assert count
        left = [
            value
            for _, value in _recognised(clean)
            if not any(f"{name}{sign}{value}" in clean for name in IDS for sign in ("=", '": "'))
        ]
        assert left == []
