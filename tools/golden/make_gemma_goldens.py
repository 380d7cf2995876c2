#!/usr/bin/env python3
"""Golden answers of Gemma 3 270M: next-token logits, 16 greedy tokens, token ids.

    python3 tools/golden/make_gemma_goldens.py MODEL.gguf GPL-3 tests/golden/model/gemma3-270m

MODEL.gguf is the file that `tools/setup --gemma` fetches, GPL-3 the licence text as Debian's
base-files installs it (/usr/share/common-licenses/GPL-3). The weights are dequantised exactly and
everything after is float64 (gemma_reference.py); the ids come from the sentencepiece library with
the file's vocabulary (spm_model.py).

Needs gguf 0.19.0, numpy 2.4.6, sentencepiece 0.2.3. About two minutes and 6 GB on two cores.
"""

import argparse
import pathlib

import fixture
import spm_model
from gemma_reference import Gemma
from llama_reference import GgufFile, best_two, greedy, most_and_sample, rounded, sha256_of
from make_text_goldens import STRINGS

PROGRAM = "tools/golden/make_gemma_goldens.py"
AGAIN = (
    f"python3 {PROGRAM} MODEL.gguf /usr/share/common-licenses/GPL-3 tests/golden/model/gemma3-270m"
)
PACKAGES = ["gguf", "numpy", "sentencepiece"]

MODEL_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GPL3_SHA256 = "3972dc9744f6499f0f9b2dbf76696f2ae7ad8af9b23dde66d6af86c9dfb36986"

GREEDY_TOKENS = 16
TOP = 32
SAMPLE_EVERY = 2048  # 262144 / 2048: 128 logits spread over the vocabulary
PLACES = 6  # further positions of a prompt of which little is kept
# The window is 512: local layers of the last rows of the long prompt no longer see its beginning.
LONG_TOKENS, LONG_START = 600, "0. Definitions"

# Chosen like those of the default model: no end token in an answer, no gap below 1e-3 of the range.
PROMPTS = {
    "plain": "The capital of France is Paris. The capital of Japan is Tokyo. The capital of Italy is",
    "code": "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "nonlatin": "北京是中国的首都。Москва — столица России. 東京は日本の首都です。",
}


def places_of(model, ids):
    """The two best tokens at a few positions before the last, which a prompt's rows must give too."""
    step = max(1, len(ids) // PLACES)
    positions = [at for at in range(step - 1, len(ids) - 1, step)][:PLACES]
    out = []
    for position, logits in zip(positions, model.forward(ids, model.new_cache(), positions)):
        best, logit, _gap, second = best_two(logits)
        out.append({
            "position": position,
            "range": rounded(logits.max() - logits.min()),
            "ids": [best, second],
            "logits": rounded([logit, logits[second]]),
        })
    return out


def answer(model, spm, head, name, text):
    ids = [model.file.get("tokenizer.ggml.bos_token_id"), *spm.encode(text)]
    cache = model.new_cache()
    logits = model.forward(ids, cache)[0]
    out = head | {
        "name": name,
        "text": text,
        "ids": ids,
        "logits": most_and_sample(logits, TOP, SAMPLE_EVERY),
        "places": places_of(model, ids),
        "greedy": greedy(model, cache, logits, GREEDY_TOKENS),
    }
    out["greedy"]["text"] = spm.decode(out["greedy"]["ids"])
    smallest_gap = min(out["greedy"]["gaps"])
    print(
        f"{name}: {len(ids)} tokens, range {out['logits']['range']:.2f}, "
        f"smallest gap {smallest_gap:.3f}: {out['greedy']['text']!r}"
    )
    ends = {model.file.get("tokenizer.ggml.eos_token_id"), spm.piece_to_id("<end_of_turn>")}
    assert not ends & set(out["greedy"]["ids"]), f"{name}: an end token within the answer"
    assert smallest_gap > 1e-3 * out["logits"]["range"], f"{name}: two logits too close"
    return out


def first_tokens(spm, text, count):
    """The text of the first count tokens, where cutting the text there doesn't change them."""
    ids = spm.encode(text)[:count]
    prefix = spm.decode(ids)
    assert text.startswith(prefix) and spm.encode(prefix) == ids
    return prefix


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("gpl3", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    assert sha256_of(args.model) == MODEL_SHA256, f"{args.model} is not the pinned model"
    assert sha256_of(args.gpl3) == GPL3_SHA256, f"{args.gpl3} is another text"
    args.out.mkdir(parents=True, exist_ok=True)

    file = GgufFile(args.model)
    spm = spm_model.processor(file)
    head = fixture.header(PROGRAM, AGAIN, PACKAGES)
    head["model"] = {"file": "gemma-3-270m-q4_k_m.gguf", "sha256": MODEL_SHA256}
    cases = [{"text": text, "ids": spm.encode(text)} for text in STRINGS]
    fixture.write_json(args.out / "tokens.json", head | {"cases": cases})

    model = Gemma(file)
    licence = args.gpl3.read_text(encoding="utf-8")
    jobs = dict(PROMPTS)
    jobs["long"] = first_tokens(spm, licence[licence.index(LONG_START) :], LONG_TOKENS - 1)
    for name, text in jobs.items():
        fixture.write_json(args.out / f"{name}.json", answer(model, spm, head, name, text))


if __name__ == "__main__":
    main()
