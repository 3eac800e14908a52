"""What secrets look like in text, whatever they stand under."""

import re
from typing import NamedTuple


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
        "private_key", ("private-lines:",), re.compile(r"Private-Lines: ?\d+\s+(?P<secret>[A-Za-z0-9+/=\\\s]{40,})")
    ),
    Pattern(
        "private_key",
        ("private key", "secret key"),
        re.compile(
            r"(?i)(?:private|secret) key(?: (?:for|of) [\w.-]{1,42})?\W{1,4}(?:(?:is|was)\W{1,3})?"
            r"(?P<secret>(?:0x)?[0-9a-f]{64})\b"
        ),
    ),
    Pattern(
        "authorization",
        ("bearer ",),
        re.compile(r"(?i)\bbearer (?P<secret>(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,})"),
    ),
    Pattern(
        "authorization",
        ("basic ",),
        re.compile(r"\bBasic (?P<secret>(?=[A-Za-z+/]*[0-9=])[A-Za-z0-9+/]{8,}={0,2})(?!\w)"),
    ),
    Pattern(
        "access_key",
        ("akia", "asia"),
        re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\W{1,4}(?P<secret>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])"),
    ),
    Pattern("password", ("://",), re.compile(r"://[^\s/:@\"']{0,256}:(?P<secret>[^\s/\"']{1,256})@")),
    Pattern(
        "api_key",
        ("://",),
        re.compile(
            r"(?:infura\.io/(?:ws/)?v3|alchemy(?:\.com|api\.io)/v2|quiknode\.pro|ankr\.com/[a-z_]+|p2pify\.com"
            r"|getblock\.io|blastapi\.io|nodereal\.io/v1|hooks\.slack\.com/services|/webhooks/\d{17,20})/"
            r"(?P<secret>[\w/-]{20,})"
        ),
    ),
    Pattern(
        "secret",
        ("cookie:",),
        re.compile(r"(?i)\bcookie: ?(?P<secret>(?=[^\r\n\"']{0,80}=)[^\r\n\"'\\]{3,4000})"),
    ),
    Pattern(
        "token",
        ("-signature=", "-security-token=", "sig="),
        re.compile(r"(?i)(?:-signature|-security-token|[?&]sig)=(?!0x)(?P<secret>[A-Za-z0-9%+/_-]{32,}={0,2})"),
    ),
    Pattern(
        "password",
        (" -u", " --user"),
        re.compile(r"\s(?:-u|--user)[ =]?[\"']?[^\s:\"'/]{1,64}:(?P<secret>[^\s\"':/][^\s\"']{2,255})"),
    ),
    Pattern(
        "password",
        ("sshpass", "machine "),
        re.compile(r"(?:sshpass -p ?|machine \S+\s+login \S+\s+password )[\"']?(?P<secret>[^\s\"']{3,})"),
    ),
    Pattern(
        "password",
        ("password", "passphrase", "passcode"),
        re.compile(
            r"(?i)\bpass(?:word|phrase|code) (?:is|was|to)[ :]{1,2}[\"'`]?"
            r"(?P<secret>(?=[^\s\"'`]*[0-9])(?=[^\s\"'`]*[^\s\"'`0-9])[^\s\"'`]{4,63}[^\s\"'`.,;:!?)])"
        ),
    ),
)
"""Tried on whole texts."""
NEEDLES = tuple(sorted({needle for pattern in PATTERNS for needle in pattern.needles}))

LONG_RUN = re.compile(r"[A-Za-z0-9_.~+/=:-]{20,}")
"""Where the tokens of TOKENS and what is encoded can stand: most texts have no such stretch."""

_DISTINCT_KEYS = (
    r"sk-(?:proj|svcacct|admin|ant-\w{3,9}|or-v1|lf)-(?=[A-Za-z_-]{0,99}[0-9])[\w-]{20,}|sk-[0-9a-f]{32}"
    r"|sk-(?=[\w-]{0,99}[0-9])(?=[\w-]{0,99}[A-Z])[\w-]{32,}"
    r"|[sr]k_(?:live|test|prod)_\w{16,}|whsec_[A-Za-z0-9+/=]{24,}"  # Stripe
    r"|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|gl(?:pat|dt|rt|ptt|cbt|ft|soat|imt|agent|oas)-[\w.-]{20,}"
    r"|xox[abeoprs]-[\w.-]{16,}|xapp-\d-[\w-]{20,}"  # Slack
    r"|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}"  # Google
    r"|(?:hf|npm|gsk|xai|nvapi|pplx|tvly)[_-][A-Za-z0-9_-]{0,8}[A-Za-z0-9]{24,}|pypi-[\w-]{40,}"
    r"|(?:r8|re|ntn|sb[ps]|ph[cx])_(?=\w{0,99}[0-9])(?=\w{0,99}[A-Z])\w{24,}"
    r"|SG\.[\w-]{16,32}\.[\w-]{16,64}|xkeysib-[0-9a-f]{64}-\w{16}|do[opr]_v1_[0-9a-f]{64}|dapi[0-9a-f]{32}"  # mail
    r"|lin_api_\w{32,}|fig[dur]_[\w-]{30,}|pul-[0-9a-f]{40}|sntry[su]_[\w=+/]{40,}|PMAK-[\w-]{50,}"
    r"|ATATT3[\w=-]{40,}|ATBB\w{24,}|dckr_pat_[\w-]{24,}|tskey-[\w-]{20,}|rubygems_[0-9a-f]{40,}"
    r"|glsa_\w{32,}|glc_[\w=+/]{32,}|lsv2_[ps][tk]_\w{30,}|NRAK-[A-Z0-9]{20,}|dt0c01\.\w{20,}\.\w{60,}"
    r"|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|sq0(?:atp|csp)-[\w-]{22,}|EAACEdEose0cBA\w{20,}|ops_eyJ[\w-]{100,}"
)
"""Of a form that nothing else has, so that `-` and `_` may stand before them: `run-ghp_...`, `user_AKIA...`."""
_OTHER_KEYS = (
    r"sk-(?=[A-Za-z_-]*[0-9])[\w-]{20,}"  # OpenAI, Anthropic, OpenRouter, Langfuse
    r"|(?:r8|re)[_-][A-Za-z0-9_-]{0,8}[A-Za-z0-9]{24,}|hv[sbr]\.[\w-]{24,}|ntn_\w{40,}|sb[ps]_\w{36,}|ph[cx]_\w{40,}"
    r"|SK[0-9a-f]{32}|key-[0-9a-f]{32}|[0-9a-f]{32}-us\d{1,2}"  # Twilio, mail
    r"|\w{3}[78]Q~[\w.~-]{31,34}"  # Microsoft Entra
)
TOKENS = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?P<api_key>(?<![_-])(?:{_OTHER_KEYS})|{_DISTINCT_KEYS})"
    r"|(?P<jwt>(?<![_-])eyJ[\w-]{8,}(?:\.[\w-]*(?:\.[\w-]{8,}){3}|\.[\w-]{8,}(?:\.[\w-]*)?))"
    r"|(?P<access_key>(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}(?![0-9A-Z]))"
    r"|(?P<token>(?<![_-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,40}(?![\w-]))"  # Discord
    r"|(?P<private_key>[tuvxyzYZ]prv[1-9A-HJ-NP-Za-km-z]{100,112}|AGE-SECRET-KEY-1[0-9A-Z]{50,}))"
    r"|(?<![0-9])(?P<bot>\d{8,10}:AA[\w-]{32,35})(?![\w-])",  # Telegram
    re.ASCII,
)
"""Tokens with a form of their own. Their group is their kind (`bot`: token)."""

EMAIL = re.compile(r"(?<![\w.+-])[A-Za-z0-9][\w.+%-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@-])")
PHONE = re.compile(
    r"(?<![\w.+-])(?:\+[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){2,4}"
    r"|\(\d{3}\) ?\d{3}[ .-]\d{4}|\d{3}[.-]\d{3}[.-]\d{4})(?![\w-]|\.\d)"
)
"""International with `+`, or the North American form with separators; a bare row of digits is none."""
PERSONAL_NEEDLES = ("@", "mail", "phone", "mobile", "cell")
