"""Secrets go, what agents need stays."""

import base64
import gzip
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemonic import Mnemonic
from msgspec.structs import replace
from support.planted import PLACES, calls, forms, planted

from fluvial.processors.redact import KEYLESS, Redactor, count_marks
from fluvial.processors.seed_phrase import is_seed_phrase, seed_phrases
from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.codec import decode, encode
from fluvial.schemas.dead_letter import KEEP_BYTES
from fluvial.schemas.insight import InsightOp
from fluvial.schemas.tool_call import ToolCall

PRIVATE_KEY = "0x" + "ab" * 32
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.c2lnbmF0dXJlLW5vdC1yZWFs"
PHRASE = "test test test test test test test test test test test junk"
ADDRESS = "0x88e6A0c2dDD26FEEb64F039a2c41296FcB3f5640"
TRANSACTION = "0x" + "9f" * 32
MINT = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"
SIGNATURE = "5VERv8NMvzbJMEkV8xnrLkEaWRtSz9CosKDYjCJjBRnbJLgp8uirBgmQpjKhoR4tjF3ZpRzrFmBV6UjKdiSZkQUW"
KEYED = Redactor(b"k" * 32)

redact, redact_text = KEYLESS.call, KEYLESS.text


def call(**fields: Any) -> ToolCall:
    return ToolCall(source="bot", run_id="r", tool="swap", **fields)


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        ({"private_key": PRIVATE_KEY}, "private_key"),
        ({"privateKey": PRIVATE_KEY[2:]}, "private_key"),
        ({"wallet": {"signer": PRIVATE_KEY}}, "private_key"),
        ({"pem": "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----"}, "private_key"),
        ({"note": f"my private key is {PRIVATE_KEY}"}, "private_key"),
        ({"note": f"the words: {PHRASE}."}, "mnemonic"),
        ({"words": PHRASE.upper().split()}, "mnemonic"),
        ({"seed_phrase": "correct horse battery staple"}, "mnemonic"),
        ({"headers": {"Authorization": f"Bearer {JWT}"}}, "authorization"),
        ({"curl": "curl -H 'X-Auth: bearer abcdef0123456789abcdef'"}, "authorization"),
        ({"cookie_value": JWT}, "jwt"),
        ({"password": "hunter2"}, "password"),
        ({"password": 123456}, "password"),
        ({"dbPassword": ["old", {"now": "new"}]}, "password"),
        ({"url": "postgres://user:hunter2@db:5432/x"}, "password"),
        ({"body": '{"api_key": "k-1", "limit": 5}'}, "api_key"),
        ({"body": '{\\"apiKey\\": \\"k-1\\"}'}, "api_key"),
        ({"OPENAI_API_KEY": "x"}, "api_key"),
        ({"rpc": "https://mainnet.infura.io/v3/0123456789abcdef0123456789abcdef"}, "api_key"),
        ({"text": "key sk-proj-abc123abc123abc123abc123 is mine"}, "api_key"),
        ({"aws_access_key_id": "AKIAIOSFODNN7EXAMPLE"}, "access_key"),
        ({"text": "AKIAIOSFODNN7EXAMPLE"}, "access_key"),
        ({"token": "ghx9aVeryLongTokenWithDigits123"}, "token"),
        ({"url": "https://x.io/a?token=abcdef0123456789abcdef"}, "token"),
        ({"client_secret": "s"}, "secret"),
    ],
)
def test_a_secret_is_replaced_by_a_mark_of_its_kind(args: dict[str, Any], kind: str) -> None:
    clean, count = redact(call(args=args))
    assert f"[redacted:{kind}]" in str(clean.args)
    assert count == count_marks(clean) >= 1
    secrets = (
        PRIVATE_KEY[2:],
        PHRASE,
        JWT,
        "hunter2",
        "MHcCAQEE",
        "0123456789abcdef",
        "abc123",
        "AKIA",
        "k-1",
        "horse",
    )
    assert not any(secret in str(clean.args) for secret in secrets)


@pytest.mark.parametrize(
    "args",
    [
        {"token": ADDRESS, "token_pair": "WETH/USDC", "tokens": ["WETH"], "max_tokens": 800, "token_in": "WETH"},
        {"token": "USDC", "tokenOut": ADDRESS, "key": "slot", "public_key": TRANSACTION},
        {"tx_hash": TRANSACTION, "pool": ADDRESS, "amount_in": "1000000000000000000", "storage": {"key": TRANSACTION}},
        {"amount": str(2**256 - 1), "seed": 42, "calldata": "0x" + "a1" * 500},
        {"password": None, "secret": "", "has_password": True, "password_required": False},
        {"q": "how do I rotate a password: read the manual", "note": "the secret of success"},
        {"url": "https://app.uniswap.org/swap?inputCurrency=ETH", "email": "a@b.c"},
        {"code": "password = getpass()\ntoken = tokens[0]\nsecret = compute(x)"},
        {"words": "zoo " * 11 + "zoo zoo"},
        {"prose": "the token was swapped against another one, a key moment for the market"},
        [1, 2.5, None, True, "WETH"],
        "WETH",
        None,
    ],
)
def test_addresses_hashes_amounts_and_prose_stay(args: Any) -> None:
    before = call(args=args)
    after, count = redact(before)
    assert (after, count) == (before, 0)


def test_every_text_of_a_call_is_looked_at() -> None:
    clean, count = redact(
        call(
            result={"error": f"bad header Bearer {JWT}"},
            error_message="login with password=hunter2 failed",
            reflection=f"I should not print {PHRASE}",
            labels={"api_key": "k", "url": "redis://:hunter2@cache"},
            metrics={f"cost of {JWT}": 1.5, "gas_gwei": 30.0},
        )
    )
    assert count == count_marks(clean) == 6
    assert clean.result == {"error": "bad header Bearer [redacted:jwt]"}
    assert clean.error_message == "login with password=[redacted:password] failed"
    assert clean.reflection == "I should not print [redacted:mnemonic]"
    assert clean.labels == {"api_key": "[redacted:api_key]", "url": "redis://:[redacted:password]@cache"}
    assert clean.metrics == {"cost of [redacted:jwt]": 1.5, "gas_gwei": 30.0}


def test_names_that_are_secrets_stay_distinct() -> None:
    clean, count = redact(call(args={"AKIAIOSFODNN7EXAMPLE": 1, "AKIAIOSFODNN7EXAMPLF": 2}))
    assert count == 2
    assert list(clean.args.values()) == [1, 2]


def test_a_clean_call_is_clean_for_good() -> None:
    once, count = redact(call(args={"private_key": PRIVATE_KEY, "note": PHRASE, "body": '{"password": "hunter2"}'}))
    assert count == 3
    assert redact(once) == (once, 0)


def test_raw_text_of_a_broken_record_is_redacted_too() -> None:
    text, count = redact_text(f'{{"tool": "swap", "args": {{"private_key": "{PRIVATE_KEY}", "tx": "{TRANSACTION}"')
    assert text == f'{{"tool": "swap", "args": {{"private_key": "[redacted:private_key]", "tx": "{TRANSACTION}"'
    assert count == 1


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    clean, count = redact_text(text)
    assert (clean == text) == (count == 0)


@given(st.sampled_from([16, 20, 24, 28, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
def test_phrases_of_every_length_are_found_in_a_sentence(entropy: bytes) -> None:
    phrase = Mnemonic("english").to_mnemonic(entropy)
    text = f"Words:\n{phrase.replace(' ', ', ')}\nkeep them"
    assert any(text[start:end].replace(", ", " ") == phrase for start, end in seed_phrases(text))
    assert "[redacted:mnemonic]" in redact_text(text)[0]


@given(st.lists(st.sampled_from(Mnemonic("english").wordlist), min_size=11, max_size=25))
def test_a_phrase_is_one_exactly_where_bip39_says_so(words: list[str]) -> None:
    assert is_seed_phrase(words) == Mnemonic("english").check(" ".join(words))


def test_the_invented_secrets_of_the_hard_cases_are_found(shared: Path) -> None:
    for line in (shared / "data/hard/hard_cases.jsonl").read_text().splitlines():
        hard = msgspec.json.decode(line)
        _, count = redact(call(args=hard["args"], result=hard["result_text"]))
        assert count == ("secret_like" in hard["hard_case"]), hard["hard_case"]


def test_nothing_in_11513_real_calls_is_taken_for_a_secret(shared: Path) -> None:
    marked = []
    for file in sorted((shared / "data/agents").glob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            one = msgspec.json.decode(line)
            clean, count = redact(call(args=one["args"], result=one["result_text"]))
            marked += re.findall(r"\[redacted:\w+\]", str(clean)) if count else []
    assert marked == []


@pytest.mark.parametrize(
    "args",
    [
        {"token": MINT, "mint": MINT, "signature": SIGNATURE, "sig": SIGNATURE, "text": f"sent {SIGNATURE} to {MINT}"},
        {"token": "550e8400-e29b-41d4-a716-446655440000", "key": "f7c3bc1d808e04732adf679965ccc34ca7ae3441"},
        {
            "token": "ibc/27394FB092D2ECCD56123C74F36E4C1F926001CEADA9CA97EA622B25F41E5EB2",
            "key": "toolu_01A09q90qw90lq917835",
        },
        {"token": "cosmos1vladfjwqjtxkfhc8rqd6zg9nyexq0ftn8v0xlf", "auth": "call_AbCdEfGhIjKlMnOpQrStUvWx1"},
        {"token": "TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t", "key": "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"},
        {"token": "aave-v3-polygon-usdc-2-pool", "next_page_token": "abcdef0123456789abcdef", "token0": MINT},
        {"authorization": {"from": ADDRESS, "value": "1000000", "nonce": TRANSACTION}, "idempotency_key": "a1" * 12},
        {"env": "PWD=/home/user/project\nTOKEN_SYMBOL=WETH\nPASSWORD=${DB_PASSWORD}", "password": "********"},
        {"doc": "Password: required\ntoken: string\nseed phrase: none", "yaml": "secret: {type: string}"},
        {"bytes": list(range(64)), "path": "/usr/lib/python3/dist-packages/cryptography/hazmat/Backends1"},
        {"sha": "sha256:" + "0f" * 32, "session_id": "b5a3c1d2e4f60718293a4b5c6d7e8f90", "pool": "0x" + "ab" * 20},
        {"text": "the sk-learn-model-with-a-long-name and task-0123456789abcdefghij-run"},
        {"csv": '"user","password","email"\n"a","b","c"', "code": "def f(password: str, token: str = ''): ..."},
    ],
)
def test_public_ids_of_other_chains_and_templates_stay(args: Any) -> None:
    before = call(args=args)
    assert redact(before) == (before, 0)


def test_equal_secrets_stay_equal_however_they_are_written() -> None:
    clean, count = KEYED.call(
        call(
            args={"private_key": PRIVATE_KEY, "raw": PRIVATE_KEY[2:].upper(), "signer": PRIVATE_KEY[2:]},
            result=[f"my private key is {PRIVATE_KEY}", f"--private-key {PRIVATE_KEY}"],
            reflection=f"Bearer {JWT}",
            labels={"authorization": f"Bearer {JWT}", "plain": JWT, "url": f"https://x.io/?auth={JWT}"},
        )
    )
    marks = re.findall(r"\[redacted:([a-z_]+):([0-9a-f]{12})\]", str(clean))
    assert count == len(marks) == 8
    assert len({mark for kind, mark in marks if kind == "private_key"}) == 1
    assert len({mark for kind, mark in marks if kind != "private_key"}) == 1
    words = PHRASE.split()
    assert KEYED.value(words)[0] == [KEYED.text(PHRASE.upper())[0]] == [KEYED.text(", ".join(words))[0]]


def test_marks_depend_on_the_key_and_never_show_it() -> None:
    other = Redactor(b"o" * 32)
    assert KEYED.text(JWT) == KEYED.text(JWT)
    assert KEYED.text(JWT) != other.text(JWT) != KEYLESS.text(JWT)
    assert "kkk" not in repr(KEYED)


def test_ids_that_are_secrets_are_replaced_too_and_stay_equal() -> None:
    one, count = KEYED.call(ToolCall(source=JWT, run_id=JWT, tool="t", event_id=JWT, call_id=JWT, agent_id=JWT))
    assert count == 5
    assert {one.source, one.run_id, one.event_id, one.call_id, one.agent_id} == {KEYED.text(JWT)[0]}


@pytest.mark.parametrize(
    "value",
    [
        base64.b64encode(f"login with password=hunter2 and {JWT}".encode()).decode(),
        base64.urlsafe_b64encode(b'{"apiKey": "k-1", "n": "???>>>"}').decode(),
        base64.encodebytes(f"the words are: {PHRASE}, keep them well".encode() * 2).decode(),
        f"/v1/{base64.urlsafe_b64encode(b'password=correct-horse-7').decode()}/x",
        "https%3A%2F%2Fapp%3Ahunter2%40db%2Fx",
        '{\\"url\\":\\"https:\\/\\/app:hunter2@db\\/x\\"}',
        '{"password"\\u003a "hunter2"}',
        f'"note\\n{JWT}"',
        "\\n".join(PHRASE.split()),
    ],
)
def test_what_is_encoded_once_is_read(value: str) -> None:
    clean, count = KEYED.text(value)
    assert count
    assert not any(secret in clean for secret in ("hunter2", JWT, "junk"))
    assert not any(len(token) > 40 and "redacted" not in token for token in re.findall(r"[\w+/=-]{41,}", clean))
    assert KEYED.text(clean) == (clean, 0)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"password": "a\\"b c", "n": 1}', '{"password": "[redacted:password]", "n": 1}'),
        ('{"password": "hunter2', '{"password": "[redacted:password]'),
        ("postgres://u:p@ss@h/x", "postgres://u:[redacted:password]@h/x"),
        ("https://host:80/path?user=a@b.c", "https://host:80/path?user=a@b.c"),
        ("DB_PASSWORD=p@ss;w0rd)x\nA=1", "DB_PASSWORD=[redacted:password]\nA=1"),
        ("clientsecret=abc&x=1", "clientsecret=[redacted:secret]&x=1"),
        ("APIToken: abc1", "APIToken: [redacted:token]"),
        (f"my seed phrase: {' '.join(['zoo', 'yard'] * 6)} ok", "my seed phrase: [redacted:mnemonic] ok"),
        ("mnemonic: correct horse battery staple", "mnemonic: [redacted:mnemonic]"),
        ("mysql --password hunter2 -h db", "mysql --password [redacted:password] -h db"),
    ],
)
def test_values_of_names_in_text_are_taken_whole(text: str, left: str) -> None:
    assert KEYLESS.text(text) == (left, int(text != left))


@pytest.mark.parametrize(
    ("value", "left"),
    [
        (["login", "--password", "hunter2", "-v"], ["login", "--password", "[redacted:password]", "-v"]),
        ([["Authorization", "abc"]], [["Authorization", "[redacted:authorization]"]]),
        ({"name": "API_KEY", "value": "abc"}, {"name": "API_KEY", "value": "[redacted:api_key]"}),
        (
            {"credentials": {"user": "a", "pin": 1234}},
            {"credentials": dict.fromkeys(("user", "pin"), "[redacted:secret]")},
        ),
        ({"secretKey": list(range(32))}, {"secretKey": ["[redacted:private_key]"]}),
    ],
)
def test_the_structure_shows_secrets(value: Any, left: Any) -> None:
    assert KEYLESS.value(value)[0] == left


_RUN = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD3fG6iJ9lM2oP5rS8uV1wX4yZ7bC0eF3hI6kL9nO2qR5tU8"


@pytest.mark.parametrize("before", ["i-", "x_", "run-", "user_", "-", "_", "a-b_"])
@pytest.mark.parametrize(
    "token",
    [
        *("ghp_" + _RUN[:36], "gho_" + _RUN[:36], f"github_pat_{_RUN[:22]}_{_RUN[:59]}", "AKIAQ7RT2XK9PLM4VNWZ"),
        *(
            "sk-proj-" + _RUN[:74],
            "sk-ant-api03-" + _RUN,
            "sk-or-v1-" + "0a1b" * 16,
            "sk-" + _RUN[:48],
            "hf_" + _RUN[:34],
        ),
        *("sk-" + "0a1b" * 8, "xoxb-123456789012-1234567890123-" + _RUN[:24], "AIza" + _RUN[:35]),
        *("sk_live_" + _RUN[:24], "glpat-" + _RUN[:20], "npm_" + _RUN[:36], "pypi-AgEIcHlwaS5vcmc" + _RUN[:60]),
        *(f"SG.{_RUN[:22]}.{_RUN[:43]}", "re_" + _RUN[:32], "r8_" + _RUN[:37]),
    ],
)
def test_a_token_is_found_behind_a_name_and_a_hyphen(token: str, before: str) -> None:
    clean, count = KEYED.text(before + token)
    assert (clean, count) == (before + KEYED.text(token)[0], 1)


@pytest.mark.parametrize(
    "text",
    [
        "lodash-npm-4.17.21-6382451519-eb8d4b8d8b.zip and task-sk-learn-model-with-a-long-name-0123",
        "cache-key-d41d8cd98f00b204e9800998ecf8427e, user_re_index_of_all_the_pools_2024_again",
        "gluon_sb_s_metrics, pre_re_entrancy_guard_check_number_2_of_many, my_hf_model",
    ],
)
def test_names_with_the_beginning_of_a_token_in_them_stay(text: str) -> None:
    assert KEYLESS.text(text) == (text, 0)


def test_what_the_marks_make_too_long_for_a_call_is_cut_before_a_mark() -> None:
    keys = " ".join(f"AKIAQ7RT2XK9PLM4{a}{b}WZ" for a in "ABC" for b in "EFGH")
    ids = dict.fromkeys(("source", "run_id", "tool", "agent_id", "call_id", "model", "task_id"), keys[:251])
    short: dict[str, Any] = dict.fromkeys(("event_id", "chain", "token_pair"), keys[:125])
    clean, _ = KEYED.call(
        ToolCall(
            **ids,
            **short,
            error_message=(keys + " ") * 260,
            labels={keys[:125]: (keys + " ") * 260},
            metrics={keys[:125]: 1.0},
        )
    )
    assert decode(encode(clean), ToolCall) == clean
    assert KEYED.call(clean) == (clean, 0)
    assert re.fullmatch(r"(\[redacted:access_key:[0-9a-f]{12}\] ){7}", clean.run_id)
    other, _ = KEYED.call(call(event_id=keys[:104] + "AKIAQ7RT2XK9PLM4ZZWZ"))
    assert len(clean.event_id) == len(other.event_id) == 32
    assert clean.event_id != other.event_id


def test_personal_data_go_when_asked() -> None:
    text = "write to jane.doe@example.com or call +1 415 555 0132 or (415) 555-0132; 1764500000 and 415555 are figures"
    assert KEYLESS.text(text) == (text, 0)
    personal = Redactor(personal=True)
    assert personal.text(text) == (
        "write to [redacted:email] or call [redacted:phone] or [redacted:phone]; 1764500000 and 415555 are figures",
        3,
    )
    clean, count = personal.call(call(args={"email": "jane", "phone": 4155550132, "run": "+49 30 901820"}))
    assert (list(clean.args.values()), count) == (["[redacted:email]", "[redacted:phone]", "[redacted:phone]"], 3)


def test_an_operation_on_an_insight_keeps_no_secret() -> None:
    op = InsightOp(
        op_id="o",
        op="ADD",
        reason="operator",
        actor="me, password=hunter2",
        at=1,
        insight_id="i",
        content=f"Use {JWT}.",
        evidence=("e", JWT),
        claim=Claim(
            source="s", atoms=(Atom(feature="args.api_key", op="eq", value="k-1"), Atom(feature="n", op="ge", value=3))
        ),
    )
    clean = KEYED.operation(op)
    assert clean.claim is not None
    assert not any(secret in str(clean) for secret in (JWT, "hunter2", "k-1"))
    assert (clean.op_id, clean.insight_id, clean.claim.atoms[1]) == ("o", "i", Atom(feature="n", op="ge", value=3))
    assert KEYED.operation(clean) == clean
    plain = replace(op, content="swap fails when tolerance_bps is at most 1", actor="distil", evidence=(), claim=None)
    assert KEYED.operation(plain) is plain


SNIPPETS = (
    *("password=", '"token": "', "Cookie: a=", "://u:", "@h ", "hunter2", "Bearer ", "-u me:", "--api-key ", "a@b.cc"),
    *(
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "\\n",
        "\\",
        '"',
        "\n",
        " ",
        "%3A",
        ": ",
        ", ",
        "[redacted:jwt]",
        "private key is ",
    ),
    *(
        "<pwd>x</pwd>",
        "AKIAIOSFODNN7EXAMPLE",
        JWT,
        PHRASE,
        PRIVATE_KEY,
        base64.b64encode(b"password=hunter2 is it").decode(),
    ),
)


@given(st.lists(st.sampled_from(SNIPPETS), max_size=12).map("".join))
def test_what_is_redacted_is_redacted_for_good(text: str) -> None:
    for redactor in (KEYED, Redactor(b"k" * 32, personal=True), KEYLESS):
        clean, _ = redactor.text(text)
        assert redactor.text(clean) == (clean, 0)
        assert redactor.value({"x": [clean]}) == ({"x": [clean]}, 0)


def test_invented_secrets_of_28_kinds_are_found_in_every_place_of_a_call() -> None:
    secrets = planted()
    assert (len(secrets), len({one.kind for one in secrets})) == (224, 28)
    left = []
    for shift in range(PLACES):
        turned = secrets[shift:] + secrets[:shift]
        for one, made in zip(turned, calls(turned), strict=True):
            clean, _ = KEYED.call(made)
            assert KEYED.call(clean) == (clean, 0)
            data = encode(clean)
            left += [(one.kind, form) for trace in one.traces for form in forms(trace) if form in data]
    assert left == []


UNITS = (
    *(
        "password=",
        "token: ",
        '"key": "',
        "a " * 20 + "\n",
        "://a:",
        "abandon ",
        " -u x:",
        "\\u003d",
        "%41",
        "eyJ",
        "sk-",
    ),
    *(
        "A" * 50 + "\n",
        "<secret>",
        "--password ",
        "[1,",
        "5K",
        ".",
        "\0",
        "Cookie: ",
        "key:=",
        'name": "token", ',
        " ",
        "-",
    ),
    *(
        "MAAAAAAAAAAAAAAAAAAAAAAA.",
        "pwd = ",
        "\\n",
        "[redacted:",
        "[redacted:jwt]",
        "1,",
        "a@",
        "+1 ",
        "abandon",
        "sig=",
    ),
)


@pytest.mark.parametrize("unit", UNITS)
def test_no_text_takes_long(unit: str) -> None:
    text = unit * (KEEP_BYTES // len(unit))
    begin = time.process_time()
    Redactor(personal=True).text(text)
    assert time.process_time() - begin < 1
