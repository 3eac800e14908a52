"""Secrets go, what agents need stays."""

import gzip
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mnemonic import Mnemonic

from fluvial.processors.redact import count_marks, redact, redact_text
from fluvial.processors.seed_phrase import is_seed_phrase, seed_phrases
from fluvial.schemas.tool_call import ToolCall

PRIVATE_KEY = "0x" + "ab" * 32
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ0ZXN0In0.c2lnbmF0dXJlLW5vdC1yZWFs"
PHRASE = "test test test test test test test test test test test junk"
ADDRESS = "0x88e6A0c2dDD26FEEb64F039a2c41296FcB3f5640"
TRANSACTION = "0x" + "9f" * 32


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
