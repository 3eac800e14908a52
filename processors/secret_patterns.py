"""What secrets look like in text, and the names they stand under."""

import re
from typing import NamedTuple

_NAMES = {
    "private_key": "private_key privatekey priv_key privkey signing_key signer_key wallet_key deployer_key owner_key "
    "encryption_key ssh_key",
    "mnemonic": "mnemonic mnemonic_phrase seed_phrase recovery_phrase",
    "password": "password passwd pwd passphrase",
    "api_key": "api_key apikey",
    "access_key": "access_key access_key_id secret_access_key",
    "token": "access_token auth_token refresh_token session_token bearer_token api_token id_token csrf_token "
    "secret_token",
    "authorization": "authorization",
    "secret": "secret secret_key cookie credentials",
}
SECRET_NAMES = {name: kind for kind, names in _NAMES.items() for name in names.split()}
DOUBTFUL_NAMES = frozenset({"token", "auth", "key", "pk", "sk", "priv", "seed", "signer", "sig"})
"""Names of a secret only where the value looks like one: a `token` is mostly a coin, a `key` mostly a name."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_MARK = re.compile(r"\[redacted:[a-z_]+\]")
_HEX_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")
_CREDENTIAL = re.compile(r"(?!0x)(?=[^0-9]{0,200}[0-9])(?=[^A-Za-z]{0,200}[A-Za-z])[A-Za-z0-9_.~+/=-]{20,}")
_NO_VALUE = frozenset({"null", "none", "true", "false", "undefined"})


def secret_kind(name: str, value: str) -> str | None:
    """The kind of secret that `value` under `name` is, or None. Kinds are lower-case words for a placeholder."""
    value = value.strip()
    if not value or value.lower() in _NO_VALUE or _MARK.fullmatch(value):
        return None
    words = _SEPARATORS.split(_CAMEL.sub("_", name[:256]).lower().strip("_"))
    for place in range(len(words)):
        kind = SECRET_NAMES.get("_".join(words[place:]))
        if kind:
            return kind
    if words[-1] not in DOUBTFUL_NAMES:
        return None
    if _HEX_KEY.fullmatch(value):
        return None if words[-1] in ("token", "key", "auth", "sig") else "private_key"
    return "token" if _CREDENTIAL.fullmatch(value) else None


class Pattern(NamedTuple):
    """Tried only where one of `needles` (lower case) is in the text; what its group `secret` matches is replaced."""

    kind: str
    needles: tuple[str, ...]
    regex: re.Pattern[str]


PATTERNS = (
    Pattern(
        "private_key",
        ("-----begin",),
        re.compile(
            r"(?s)(?P<secret>-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----"
            r".*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z))"
        ),
    ),
    Pattern(
        "private_key",
        ("private key",),
        re.compile(r"(?i)private key\W{1,3}(?:is\W{1,3})?(?P<secret>(?:0x)?[0-9a-f]{64})\b"),
    ),
    Pattern("jwt", ("eyj",), re.compile(r"\b(?P<secret>eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)")),
    Pattern("authorization", ("bearer ",), re.compile(r"(?i)\bbearer (?P<secret>[A-Za-z0-9._~+/=-]{16,})")),
    Pattern(
        "authorization",
        ("basic ",),
        re.compile(r"\bBasic (?P<secret>(?=[A-Za-z+/]*[0-9=])[A-Za-z0-9+/]{16,}={0,2})(?!\w)"),
    ),
    Pattern("access_key", ("akia", "asia"), re.compile(r"\b(?P<secret>(?:AKIA|ASIA)[0-9A-Z]{16})\b")),
    Pattern("password", ("://",), re.compile(r"://[^\s/:@\"']{0,256}:(?P<secret>[^\s/@\"']{1,256})@")),
    Pattern(
        "api_key",
        ("sk-", "k_live_", "k_test_", "ghp_", "gho_", "ghs_", "github_pat_", "xox", "aiza", "glpat-", "hf_", "npm_"),
        re.compile(
            r"(?<![\w-])(?P<secret>sk-(?=[A-Za-z_-]*[0-9])[\w-]{20,}|[sr]k_(?:live|test)_\w{16,}|gh[pos]_\w{30,}"
            r"|github_pat_\w{30,}|xox[abprs]-[\w-]{16,}|AIza[\w-]{35}|glpat-[\w-]{20,}|(?:hf|npm)_[A-Za-z0-9]{30,})"
        ),
    ),
    Pattern(
        "api_key",
        ("infura.io/", "alchemy.com/", "alchemyapi.io/", "quiknode.pro/", "ankr.com/"),
        re.compile(
            r"(?:infura\.io/(?:ws/)?v3|alchemy(?:\.com|api\.io)/v2|quiknode\.pro|ankr\.com/[a-z_]+)/(?P<secret>[\w-]{20,})"
        ),
    ),
)

_QUOTE = r"\\*[\"']"
_SPELT = "|".join(sorted((n.replace("_", "[_ -]?") for n in SECRET_NAMES), key=len, reverse=True))
NEEDLES_OF_NAMES = ("key", "secret", "passw", "pwd", "phrase", "token", "mnemonic", "auth", "cookie", "credential")
NAMED_IN_TEXT = re.compile(
    rf"(?P<name>{_SPELT}|(?<![a-z0-9])(?:{'|'.join(sorted(DOUBTFUL_NAMES))}))(?:{_QUOTE})?\s{{0,3}}[:=]\s{{0,3}}"
    rf"(?:(?P<quote>{_QUOTE})(?P<quoted>[^\n]{{1,4000}}?)(?P=quote)"
    r"|(?P<bare>(?:bearer |basic )?[^\s\"',;&}\])\\]{4,4000}))"
)
"""A name and its value (`password=...`, `"apiKey": "..."`), in text whose ASCII letters are lower case."""
