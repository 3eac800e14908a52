"""The names that secrets stand under, and which of the values under them are secrets."""

import re
from functools import lru_cache
from typing import NamedTuple

from fluvial.processors.key_formats import base58_bytes, is_base58check

_NAMES = {
    "private_key": "private_key priv_key signing_key signer_key wallet_key deployer_key owner_key encryption_key "
    "ssh_key keypair key_pair wif xprv extended_private_key",
    "mnemonic": "mnemonic mnemonic_phrase mnemonic_words seed_phrase seed_words recovery_phrase recovery_words "
    "secret_phrase secret_recovery_phrase backup_phrase",
    "password": "password passwd pwd passphrase passcode db_pass smtp_pass mysql_pass redis_pass user_pass",
    "api_key": "api_key app_key subscription_key dkey",
    "access_key": "access_key access_key_id secret_access_key account_key shared_access_key",
    "token": "access_token auth_token refresh_token session_token bearer_token api_token id_token csrf_token "
    "xsrf_token secret_token bot_token oauth_token security_token private_token personal_access_token",
    "jwt": "jwt jwt_token",
    "authorization": "authorization auth_header",
    "secret": "secret secret_key cookie set_cookie credential redaction_key",
}
SECRET_NAMES = {name: kind for kind, names in _NAMES.items() for name in names.split()}
DOUBTFUL_NAMES = frozenset({"token", "auth", "key", "pk", "sk", "priv", "seed", "signer"})
"""Names of a secret only where the value looks like one: a `token` is mostly a coin, a `key` mostly a name."""
PERSONAL_NAMES = {
    **dict.fromkeys(("email", "e_mail", "email_address", "mail"), "email"),
    **dict.fromkeys(("phone", "phone_number", "mobile", "mobile_number", "telephone", "cell"), "phone"),
}

_JOINED = {name.replace("_", ""): kind for name, kind in SECRET_NAMES.items() if len(name) > 4}
_ENDINGS = re.compile(
    r"(?:password|passwd|passphrase|secret|apikey|privatekey|secretkey|accesskey|accesstoken|authtoken|refreshtoken"
    r"|mnemonic|seedphrase)$"
)
"""Of names that are written as one word: `clientsecret`, `dbpassword`."""
_OF_PAGES = frozenset({"page", "next", "continuation", "sync", "resume", "cursor", "pagination", "cancel"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[a-z0-9]+")
MARK = re.compile(r"\[redacted:[a-z_]+(?::[0-9a-f]+)?\]")
SCHEME = re.compile(r"(?i)(?:bearer|basic|token)\s+")
_HEX_KEY = re.compile(r"(0x)?[0-9a-fA-F]{64}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_CREDENTIAL = re.compile(r"(?!0x)[A-Za-z0-9_.~+/=-]{20,}")
_CORE = re.compile(r"(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{12,}")
_NO_VALUE = re.compile(
    r"(?i)null|none|nil|true|false|undefined|required|optional|string|[*x.\u2022_-]{3,}|\$\w*\{[^}]*\}|\$[A-Z_]+|\{\{.*\}\}"
    r"|<[a-z _-]+>|%[A-Z_]+%"
)
_PATH = re.compile(r"(?:~?/|[A-Z]:\\)[^\s]*")
_PUBLIC = re.compile(
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"  # UUID
    r"|(?:call|toolu|chatcmpl|msg|run|thread|req)_[A-Za-z0-9]+"
    r"|Qm[1-9A-HJ-NP-Za-km-z]{44}|b[a-z2-7]{58,}"  # CID
    r"|[a-z]{2,20}1[02-9ac-hj-np-z]{38,58}"  # Bech32 address
    r"|(?:ibc|factory|cw20)[/:].*|.*\.near|[EUk0]Q[\w-]{46}"  # denominations of Cosmos, NEAR, TON
)


class Name(NamedTuple):
    """What a name says of its value: a secret of this kind, or (doubtful) one if it looks like one."""

    kind: str
    doubtful: str = ""


@lru_cache(4_096)
def kind_of_name(name: str, personal: bool = False) -> Name | None:
    """What values under this name are, or None. The last words count: `OPENAI_API_KEY`, `dbPassword2`, `x-api-key`.

    With `personal` also the names of e-mail addresses and phone numbers.
    """
    words = _WORD.findall(_CAMEL.sub("_", name[-256:]).lower())
    if not words:
        return None
    bare = [*words[:-1], words[-1].rstrip("0123456789")]
    for ends in (words, bare, [*bare[:-1], bare[-1].removesuffix("s")]):
        for place in range(max(0, len(ends) - 4), len(ends)):
            last = "_".join(ends[place:]).strip("_")
            kind = SECRET_NAMES.get(last) or _JOINED.get(last) or (PERSONAL_NAMES.get(last) if personal else None)
            if kind:
                return Name(kind)
    if ending := _ENDINGS.search(bare[-1]):
        return Name(_JOINED[ending.group()])
    doubtful = words[-1]
    if doubtful not in DOUBTFUL_NAMES or (doubtful == "key" and len(words) > 1) or _OF_PAGES & set(words):
        return None
    return Name("token", doubtful)


def secret_kind(name: str, value: str, personal: bool = False) -> str | None:
    """The kind of secret that `value` under `name` is, or None. Kinds are lower-case words for a placeholder."""
    known = kind_of_name(name, personal)
    if known is None:
        return None
    value = value.strip()
    if not value or _NO_VALUE.fullmatch(value) or MARK.fullmatch(SCHEME.sub("", value)):
        return None
    if not known.doubtful:
        return (
            None if known.kind == "password" and name.lower().endswith("pwd") and _PATH.fullmatch(value) else known.kind
        )
    if _HEX_KEY.fullmatch(value):
        return None if known.doubtful in ("token", "key", "auth") else "private_key"
    if known.doubtful == "key" and _HEX.fullmatch(value):
        return None  # of what is stored under its hash
    return "token" if _CREDENTIAL.fullmatch(value) and _CORE.search(value) and not _is_public(value) else None


def _is_public(value: str) -> bool:
    """Whether this is an id or an address, which anybody may know."""
    if _PUBLIC.fullmatch(value):
        return True
    whole = base58_bytes(value)
    return whole is not None and (len(whole) in (32, 64) or is_base58check(whole))
