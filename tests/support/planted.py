"""Invented secrets in the shapes of real ones, and the places of a call where agents drop them."""

import base64
import hashlib
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from mnemonic import Mnemonic

from fluvial.processors.key_formats import public_key
from fluvial.schemas.tool_call import ToolCall

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
LANGUAGES = ("english", "english", "english", "french", "italian", "japanese", "spanish", "korean")


class Planted(NamedTuple):
    """A secret in what an agent would write. `traces` are what must be found nowhere."""

    kind: str
    traces: tuple[str, ...]
    value: Any


def planted(seed: int = 4, each: int = 8) -> list[Planted]:
    """So many secrets of every kind; the same ones for the same seed."""
    dice = random.Random(seed)
    return [Planted(kind, *make(dice, number)) for kind, make in KINDS.items() for number in range(each)]


def forms(trace: str) -> Iterator[bytes]:
    """The bytes that a trace can stand as: plain, escaped for JSON, percent-encoded, and within base64."""
    plain = trace.encode()
    yield plain
    yield json.dumps(trace)[1:-1].encode()
    yield quote(trace, safe="").encode()
    for shift in range(3):  # base64 of what begins 0 to 2 bytes before the trace, without the ends that depend on it
        whole = base64.b64encode(b"\0" * shift + plain + b"\0\0\0")
        inner = whole[(0, 2, 3)[shift] : (shift + len(plain)) * 8 // 6]
        if len(inner) >= 12:
            yield inner
            yield inner.translate(bytes.maketrans(b"+/", b"-_"))


def calls(secrets: list[Planted], source: str = "planted") -> list[ToolCall]:
    """Every secret in a call of its own, each in another place of the call than the one before."""
    return [_PLACES[n % len(_PLACES)](_call(source, n), one.value) for n, one in enumerate(secrets)]


def _call(source: str, number: int) -> dict[str, Any]:
    return {
        "source": source,
        "run_id": f"run-{number % 10}",
        "tool": "deploy",
        "seq": number,
        "started_at": 10**15 + number,
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_PLACES: tuple[Callable[[dict[str, Any], Any], ToolCall], ...] = (
    lambda call, value: ToolCall(**call, args={"steps": [{"input": value}]}),
    lambda call, value: ToolCall(**call, result=value),
    lambda call, value: ToolCall(**call, status="error", error_message=f"failed with {_text(value)}"),
    lambda call, value: ToolCall(**call, labels={"context": _text(value)}),
    lambda call, value: ToolCall(**call, args={"body": json.dumps({"payload": value})}),
    lambda call, value: ToolCall(**call, args={"blob": base64.b64encode(_text(value).encode()).decode()}),
    lambda call, value: ToolCall(**call, args=[{"url": f"https://app.example/?state={quote(_text(value), safe='')}"}]),
    lambda call, value: ToolCall(**call, reflection=f"Next time do not print\n{_text(value)}\nagain"),
    lambda call, value: ToolCall(**call, args={_text(value): 1}),
)


PLACES = len(_PLACES)


def _some(dice: random.Random, letters: str, length: int) -> str:
    return "".join(dice.choices(letters, k=length))


def _hex(dice: random.Random, length: int) -> str:
    return _some(dice, "0123456789abcdef", length)


def _b64(dice: random.Random, size: int) -> str:
    return base64.b64encode(dice.randbytes(size)).decode()


def _in_prose(dice: random.Random, secret: str) -> tuple[tuple[str, ...], str]:
    said = dice.choice(["I used {} for this.", "{}", "token={}", "set it to '{}', then retry", "curl -H 'X-Key: {}' x"])
    return (secret,), said.format(secret)


def _base58(data: bytes) -> str:
    number, text = int.from_bytes(data, "big"), ""
    while number:
        number, digit = divmod(number, 58)
        text = BASE58[digit] + text
    return "1" * (len(data) - len(data.lstrip(b"\0"))) + text


def _base58check(data: bytes) -> str:
    return _base58(data + hashlib.sha256(hashlib.sha256(data).digest()).digest()[:4])


def _prefixed(*shapes: tuple[str, str, int]) -> Callable[[random.Random, int], tuple[tuple[str, ...], Any]]:
    """Tokens that begin alike: prefix, letters and how many."""

    def make(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
        prefix, letters, length = shapes[number % len(shapes)]
        return _in_prose(dice, prefix + _some(dice, letters, length))

    return make


def _openai(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    if number % 2:
        return _in_prose(dice, f"sk-{_some(dice, ALNUM, 20)}T3BlbkFJ{_some(dice, ALNUM, 20)}")
    return _in_prose(dice, f"sk-proj-{_some(dice, URLSAFE, 73)}1T3BlbkFJ{_some(dice, URLSAFE, 74)}")


def _aws(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    key, secret = "AKIA" + _some(dice, string.ascii_uppercase + "234567", 16), _some(dice, ALNUM + "+/", 40)
    return (key, secret), (
        {"aws_access_key_id": key, "aws_secret_access_key": secret},
        f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n",
        f"export AWS_ACCESS_KEY_ID={key}\nexport AWS_SECRET_ACCESS_KEY={secret}",
        f"{key},{secret}",
    )[number % 4]


def _gcp(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    lines = [_b64(dice, 48) for _ in range(6)]
    pem = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(lines) + "\n-----END PRIVATE KEY-----\n"
    account = {"type": "service_account", "project_id": "p", "private_key_id": _hex(dice, 40), "private_key": pem}
    return tuple(lines), account if number % 2 else json.dumps(account)


def _slack(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    digits = [_some(dice, string.digits, 12) for _ in range(2)]
    if number % 3 == 2:
        secret = f"T{_some(dice, string.digits, 10)}/B{_some(dice, ALNUM, 10)}/{_some(dice, ALNUM, 24)}"
        return (secret[-24:],), f"https://hooks.slack.com/services/{secret}"
    return _in_prose(dice, f"xox{'bp'[number % 2]}-{digits[0]}-{digits[1]}-{_some(dice, ALNUM, 24)}")


def _telegram(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    secret = f"{dice.randint(10**8, 10**10 - 1)}:AA{_some(dice, URLSAFE, 32)}x"
    return (secret.partition(":")[2],), secret if number % 2 else f"https://api.telegram.org/bot{secret}/getMe"


def _discord(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    user = base64.b64encode(str(dice.randint(10**17, 10**18 - 1)).encode()).decode().rstrip("=")
    return _in_prose(dice, f"{user}.{_some(dice, URLSAFE, 5)}x.{_some(dice, URLSAFE, 37)}x")


def _sendgrid(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    return _in_prose(dice, f"SG.{_some(dice, URLSAFE, 21)}x.{_some(dice, URLSAFE, 42)}x")


def _twilio(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    if number % 2:
        return _in_prose(dice, f"SK{_hex(dice, 32)}")
    secret = _hex(dice, 32)
    return (secret,), f"TWILIO_ACCOUNT_SID=AC{_hex(dice, 32)}\nTWILIO_AUTH_TOKEN={secret}"


def _azure(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    secret = _b64(dice, 64)
    return (secret,), (
        f"DefaultEndpointsProtocol=https;AccountName=store;AccountKey={secret};EndpointSuffix=core.windows.net"
    )


def _database(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    secret = _some(dice, ALNUM + "!$*()_+.", 16)
    scheme = ("postgresql", "mysql+pymysql", "mongodb+srv", "redis", "amqp", "https")[number % 6]
    user = "" if scheme == "redis" else "app"
    return (secret,), f"connecting to {scheme}://{user}:{secret}@db-1.internal:5432/app?ssl=true"


def _pem(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    lines = [_b64(dice, 48) for _ in range(5)]
    name = ("RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK")[number % 4]
    text = f"-----BEGIN {name}-----\n" + "\n".join(lines) + f"\n-----END {name}-----"
    return tuple(lines), text if number % 2 else {"file": f"id: |\n{text}\nmode: 0600"}


def _ethereum(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    secret = _hex(dice, 64)
    return (secret,), (
        {"private_key": "0x" + secret},
        {"wallet": {"signer": secret}},
        f"my private key: 0x{secret}, please swap",
        f"PRIVATE_KEY=0x{secret}",
        ["cast", "send", "--private-key", "0x" + secret],
        f"forge script --private-key {secret} --broadcast",
        {"deployerKey": secret},
        f"The private key is {secret}.",
    )[number % 8]


def _solana(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    seed = dice.randbytes(32)
    pair = list(seed + public_key(seed))
    text = _base58(bytes(pair))
    spelt = (json.dumps(pair[:12])[1:-1], json.dumps(pair[:12], separators=(",", ":"))[1:-1])
    return (
        (spelt, pair),
        ((text,), f"restore from {text} now"),
        (spelt, json.dumps(pair, separators=(",", ":"))),
        ((text,), {"secretKey": text}),
    )[number % 4]


def _bitcoin(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    if number % 2:
        return _in_prose(dice, _base58check(bytes.fromhex("0488ade4") + dice.randbytes(42) + dice.randbytes(32)))
    return _in_prose(dice, _base58check(b"\x80" + dice.randbytes(32) + (b"\x01" if number % 4 else b"")))


def _phrase(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    words = Mnemonic(LANGUAGES[number % 8]).to_mnemonic(dice.randbytes(16 if number % 3 else 32)).split()
    traces = tuple(" ".join(words[place : place + 4]) for place in (0, 4, 8))
    numbered = ", ".join(f"{place}. {word}" for place, word in enumerate(words, 1))
    if number % 4 == 2:
        traces = tuple(json.dumps(words[place : place + 3], ensure_ascii=False)[1:-1] for place in (0, 4, 8))
        return (*traces, *(trace.replace('", "', '","') for trace in traces)), words
    if number % 4 == 3:
        return (numbered[:40], numbered[-40:]), f"write down {numbered}"
    return traces, f"the words: {' '.join(words)}. Keep them."


def _jwt(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": str(dice.randint(1, 10**9)), "exp": 1_800_000_000}
    signature = base64.urlsafe_b64encode(dice.randbytes(32)).decode().rstrip("=")
    return (signature, part(claims)), f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{signature}"


def _authorization(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    secret = _some(dice, ALNUM, 32)
    basic = base64.b64encode(f"user:{secret}".encode()).decode()
    return (secret, basic), (
        {"headers": {"Authorization": f"Bearer {secret}"}},
        f"GET / HTTP/1.1\r\nAuthorization: Basic {basic}\r\nHost: x",
        f"curl -H 'Authorization: Bearer {secret}' https://api.example",
        [["Authorization", f"Token {secret}"], ["Accept", "*/*"]],
        [{"name": "Authorization", "value": f"Basic {basic}"}],
        f"curl -u admin:{secret} https://api.example",
        {"x-api-key": secret},
        f"sent bearer {secret}9 to it",
    )[number % 8]


def _cookie(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    secret = _some(dice, ALNUM, 26)
    return (secret,), (
        {"Cookie": f"theme=dark; sessionid={secret}"},
        f"Set-Cookie: sessionid={secret}; Path=/; HttpOnly",
        f"> Cookie: a=b; PHPSESSID={secret}\n> Accept: */*",
        {"set-cookie": [f"sid={secret}; Secure"]},
    )[number % 4]


def _rpc(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    hexadecimal, letters = _hex(dice, 32), _some(dice, URLSAFE, 31) + "x"
    secret, url = (
        (hexadecimal, f"https://mainnet.infura.io/v3/{hexadecimal}"),
        (letters, f"wss://eth-mainnet.g.alchemy.com/v2/{letters}"),
        (hexadecimal, f"https://cool-name.quiknode.pro/{hexadecimal}/"),
        (hexadecimal, f"https://mainnet.helius-rpc.com/?api-key={hexadecimal}"),
    )[number % 4]
    return (secret,), {"rpc_url": url} if number % 3 else f"RPC={url}"


def _settings(dice: random.Random, number: int) -> tuple[tuple[str, ...], Any]:
    secret = "Zq" + _some(dice, ALNUM + "!#%*+~", 12) + "7"
    return (secret,), (
        f"# prod\nDB_HOST=db\nDB_PASSWORD={secret}\nDEBUG=0",
        f"database:\n  user: app\n  password: {secret}\n  port: 5432\n",
        f"login --user app --password {secret} --quiet",
        f'const c = {{ apiKey: "{secret}", retries: 3 }}',
        {"config": {"dbPassword": secret, "port": 5432}},
        f"<add><username>app</username><password>{secret}</password></add>",
        {"env": [{"name": "CLIENT_SECRET", "value": secret}]},
        f"my password is {secret}",
    )[number % 8]


KINDS: dict[str, Callable[[random.Random, int], tuple[tuple[str, ...], Any]]] = {
    "github": _prefixed(("ghp_", ALNUM, 36), ("gho_", ALNUM, 36), ("github_pat_11", ALNUM, 80), ("ghs_", ALNUM, 36)),
    "gitlab": _prefixed(("glpat-", URLSAFE, 20), ("glrt-", URLSAFE, 20)),
    "aws": _aws,
    "google service account": _gcp,
    "google": _prefixed(("AIza", URLSAFE, 35), ("GOCSPX-", URLSAFE, 28), ("ya29.", URLSAFE, 60)),
    "slack": _slack,
    "stripe": _prefixed(("sk_live_", ALNUM, 24), ("rk_live_", ALNUM, 24), ("whsec_", ALNUM, 32)),
    "openai": _openai,
    "anthropic": _prefixed(("sk-ant-api03-1", URLSAFE, 92), ("sk-ant-oat01-1", URLSAFE, 92)),
    "hugging face": _prefixed(("hf_", string.ascii_letters, 34)),
    "npm": _prefixed(("npm_", ALNUM, 36)),
    "pypi": _prefixed(("pypi-AgEIcHlwaS5vcmc", URLSAFE, 120)),
    "telegram": _telegram,
    "discord": _discord,
    "sendgrid": _sendgrid,
    "twilio": _twilio,
    "azure storage": _azure,
    "database": _database,
    "pem": _pem,
    "ethereum": _ethereum,
    "solana": _solana,
    "bitcoin": _bitcoin,
    "seed phrase": _phrase,
    "jwt": _jwt,
    "authorization": _authorization,
    "cookie": _cookie,
    "rpc url": _rpc,
    "settings": _settings,
}
