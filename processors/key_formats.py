"""Keys that carry their own proof: base58 with a checksum (Bitcoin WIF), and Ed25519 pairs (Solana).

A Solana secret key is the 32 bytes of a seed and its public key; a signature is 64 bytes as well and looks the same.
So the public key is computed (RFC 8032, 5.1.5): what fits is a key, what does not is none.
"""

import hashlib
from functools import cache
from typing import Final

_BASE58 = {letter: place for place, letter in enumerate("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")}
_WIF_VERSIONS = b"\x80\xef"

_P: Final = 2**255 - 19
_D: Final = -121665 * pow(121666, -1, _P) % _P
_BASE_Y: Final = 4 * pow(5, -1, _P) % _P
_BASE_X: Final = 15112221349535400772501151409588531511454012693041857206046113283949847762202

Point = tuple[int, int, int, int]
"""X, Y, Z, T with x = X/Z, y = Y/Z, x*y = T/Z."""


def base58_bytes(text: str) -> bytes | None:
    """What base58 text of at most 128 characters stands for; None if it is none."""
    if not 1 <= len(text) <= 128:
        return None
    number = 0
    for letter in text:
        digit = _BASE58.get(letter)
        if digit is None:
            return None
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def is_base58check(data: bytes) -> bool:
    """Whether the last four bytes are the checksum of an address or key (25 to 38 bytes)."""
    if not 25 <= len(data) <= 38:
        return False
    return hashlib.sha256(hashlib.sha256(data[:-4]).digest()).digest()[:4] == data[-4:]


def is_wif(text: str) -> bool:
    """Whether this is a Bitcoin private key in the wallet import format (51 or 52 characters)."""
    if len(text) not in (51, 52):
        return False
    data = base58_bytes(text)
    return data is not None and len(data) in (37, 38) and data[0] in _WIF_VERSIONS and is_base58check(data)


def is_solana_key(text: str) -> bool:
    """Whether this base58 text is an Ed25519 secret key with its public key (86 to 88 characters)."""
    if not 86 <= len(text) <= 88:
        return False
    data = base58_bytes(text)
    return data is not None and is_key_pair(data)


def is_key_pair(data: bytes) -> bool:
    """Whether the second half is the Ed25519 public key of the first (64 bytes). About 0.3 ms."""
    return len(data) == 64 and public_key(data[:32]) == data[32:]


def public_key(seed: bytes) -> bytes:
    """The Ed25519 public key of a 32-byte seed."""
    scalar = int.from_bytes(hashlib.sha512(seed).digest()[:32], "little")
    scalar = scalar & ((1 << 254) - 8) | 1 << 254
    point: Point = (0, 1, 1, 0)
    for place, row in enumerate(_multiples()):
        digit = scalar >> 4 * place & 15
        if digit:
            point = _add(point, row[digit - 1])
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")


@cache
def _multiples() -> list[list[Point]]:
    """Row i, column j: (j + 1) * 16**i times the base point."""
    rows = []
    base: Point = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _P)
    for _ in range(64):
        row = [base]
        for _ in range(14):
            row.append(_add(row[-1], base))
        rows.append(row)
        base = _add(row[-1], base)
    return rows


def _add(p: Point, q: Point) -> Point:
    a = (p[1] - p[0]) * (q[1] - q[0]) % _P
    b = (p[1] + p[0]) * (q[1] + q[0]) % _P
    c = 2 * p[3] * q[3] * _D % _P
    d = 2 * p[2] * q[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P
