"""Ids are functions of the input, the same in every process and for ever."""

import subprocess
import sys

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fluvial.schemas.claim import Atom, Claim
from fluvial.schemas.dead_letter import dead_letter_id
from fluvial.schemas.episode import stream_key
from fluvial.schemas.ids import stable_id
from fluvial.schemas.tool_call import ToolCall, event_id_of

CALL = ToolCall(source="shop", run_id="run-1", tool="search", seq=3, args={"b": 1, "a": [None, "数"]}, started_at=17)


def test_an_id_of_today_is_the_id_of_tomorrow() -> None:
    assert stable_id("a", 1, {"y": 2, "x": None}) == "a51fcfd4632200b779a2d2854e467f4d"
    assert event_id_of(CALL) == "e9537b595854c3ed6872e723e1b0580f"
    assert dead_letter_id("tool-calls", 1, 77) == "2fd18e332643fad349a87bb74227c3b0"


def test_another_process_with_another_hash_seed_computes_the_same_id() -> None:
    program = "from fluvial.schemas.ids import stable_id; print(stable_id({'x': 1, 'a': {'k': 2, 'b': 3}}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {stable_id({"a": {"b": 3, "k": 2}, "x": 1}) + "\n"}


def test_a_given_event_id_is_kept() -> None:
    assert event_id_of(msgspec.structs.replace(CALL, event_id="mine")) == "mine"


def test_the_id_depends_on_the_call_and_not_on_its_outcome() -> None:
    outcome = {"result": {"ok": 1}, "status": "error", "error_type": "x", "metrics": {"m": 1.0}, "reflection": "r"}
    assert event_id_of(msgspec.structs.replace(CALL, **outcome)) == event_id_of(CALL)
    for change in ({"source": "s2"}, {"run_id": "r2"}, {"seq": 4}, {"tool": "t2"}, {"args": None}, {"started_at": 18}):
        assert event_id_of(msgspec.structs.replace(CALL, **change)) != event_id_of(CALL)


def test_the_call_id_stands_in_where_there_is_no_sequence_number() -> None:
    one = msgspec.structs.replace(CALL, seq=None, call_id="c1")
    two = msgspec.structs.replace(CALL, seq=None, call_id="c2")
    assert event_id_of(one) != event_id_of(two)
    assert event_id_of(msgspec.structs.replace(CALL, call_id="c1")) == event_id_of(CALL)


@given(st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1)))
def test_the_order_of_the_arguments_does_not_matter(args: dict[str, int]) -> None:
    assert stable_id(args) == stable_id(dict(reversed(args.items())))


def test_parts_do_not_run_into_each_other() -> None:
    assert stable_id("ab", "c") != stable_id("a", "bc")
    assert stable_id("1") != stable_id(1)


def test_claims_about_the_same_calls_and_direction_have_one_key_whatever_the_figures() -> None:
    atoms = (Atom(feature="x", op="ge", value=1), Atom(feature="a", op="present"))
    claim = Claim(source="shop", tool="t", atoms=atoms, expected=0.9, reference=0.1)
    same = Claim(source="shop", tool="t", atoms=atoms[::-1], expected=0.8, reference=0.3)
    opposite = Claim(source="shop", tool="t", atoms=atoms, expected=0.1, reference=0.9)
    assert claim.structured_key() == same.structured_key() != opposite.structured_key()


def test_a_claim_rests_on_what_it_predicts_and_on_the_metrics_it_reads() -> None:
    atoms = (Atom(feature="metrics.gas_gwei", op="ge", value=50), Atom(feature="args.n", op="present"))
    assert Claim(source="s", atoms=atoms, metric="pnl_bps").metrics() == {"pnl_bps", "gas_gwei"}


def test_a_call_without_chain_and_pair_has_a_stream_key_too() -> None:
    assert stream_key("search", None, None) == "search||"
    assert stream_key("swap", "ethereum", "USDC/WETH") == "swap|ethereum|USDC/WETH"
