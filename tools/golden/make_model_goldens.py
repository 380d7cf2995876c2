#!/usr/bin/env python3
"""Golden answers of the default model: next-token logits, 32 greedy tokens, perplexity.

    python3 tools/golden/make_model_goldens.py MODEL.gguf GPL-3 tests/golden/model/smollm2-135m

MODEL.gguf is the default model as set-up fetches it, GPL-3 the licence text as Debian's base-files
installs it (/usr/share/common-licenses/GPL-3). The weights are dequantised exactly and everything
after is float64 (llama_reference.py), the ids come from bpe.py and are compared with Hugging Face's
tokenizers library.

Needs gguf 0.19.0, numpy 2.4.6, regex 2026.11.19, tokenizers 0.23.3, Jinja2 3.1.6. About a minute
and 3 GB on two cores.
"""

import argparse
import pathlib

import numpy as np

import chat_render
import fixture
from bpe import Bpe
from llama_reference import GgufFile, Llama, greedy, most_and_sample, rounded, sha256_of

PROGRAM = "tools/golden/make_model_goldens.py"
AGAIN = (
    f"python3 {PROGRAM} MODEL.gguf /usr/share/common-licenses/GPL-3 tests/golden/model/smollm2-135m"
)
PACKAGES = ["gguf", "numpy", "regex", "tokenizers", "Jinja2"]

MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GPL3_SHA256 = "3972dc9744f6499f0f9b2dbf76696f2ae7ad8af9b23dde66d6af86c9dfb36986"

GREEDY_TOKENS = 32
TOP = 64
SAMPLE_EVERY = 192  # 49152 / 192: 256 logits spread over the vocabulary
LONG_TOKENS, LONG_START = 1000, "Version 3, 29 June 2007"

# Chosen so that no greedy answer meets an end token and the two best logits are never closer than
# 1e-3 of the range: an engine within its stated error must give these tokens, without excuses. The
# long prompt leaves out the licence's title line for that reason: with it the first two logits
# would differ by 2e-5.
PROMPTS = {
    "plain": (
        "The capital of France is Paris. The capital of Japan is Tokyo. The capital of Italy is"
    ),
    "code": (
        'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'
        "    if n < 2:\n        return n\n"
    ),
    "nonlatin": "北京是中国的首都。Москва — столица России. القاهرة هي عاصمة مصر. 東京は日本の首都です。",
    "one": "Dear",
    "sixteen": "The opposite of hot is cold. The opposite of big is small. The opposite",
}
QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]


def tokenize(bpe, text):
    ids = bpe.encode(text, special=True)
    assert ids == bpe.hugging_face().encode(text, add_special_tokens=False).ids
    return ids


def first_tokens(bpe, text, count):
    """The text of the first count tokens, where cutting the text there doesn't change them."""
    ids = bpe.encode(text)[:count]
    prefix = bpe.decode(ids)
    assert text.startswith(prefix) and bpe.encode(prefix) == ids
    return prefix


def answer(model, bpe, head, name, text, messages=None):
    ids = tokenize(bpe, text)
    cache = model.new_cache()
    logits = model.forward(ids, cache)[0]
    out = head | {"name": name}
    if messages:
        out["messages"] = messages
    out |= {
        "text": text,
        "ids": ids,
        "logits": most_and_sample(logits, TOP, SAMPLE_EVERY),
        "greedy": greedy(model, cache, logits, GREEDY_TOKENS),
    }
    out["greedy"]["text"] = bpe.decode(out["greedy"]["ids"])

    ends = {model.file.get("tokenizer.ggml.eos_token_id"), bpe.ids["<|endoftext|>"]}
    assert not ends & set(out["greedy"]["ids"]), f"{name}: an end token within the answer"
    smallest_gap = min(out["greedy"]["gaps"])
    assert smallest_gap > 1e-3 * out["logits"]["range"], f"{name}: two logits too close"
    print(
        f"{name}: {len(ids)} tokens, range {out['logits']['range']:.2f}, "
        f"smallest gap {smallest_gap:.3f}: {out['greedy']['text']!r}"
    )
    return out


def perplexity(model, bpe, text, context, chunks):
    """llama.cpp's convention: the text is tokenised once and cut into consecutive windows of
    context tokens, each evaluated on an empty cache; only the second half of a window is scored,
    its positions context/2 .. context-2 predicting the tokens after them. BOS would take the place
    of each window's first token if the file said add_bos_token; this one says no. Special tokens in
    the text are not parsed."""
    assert not model.file.get("tokenizer.ggml.add_bos_token", False)
    ids = bpe.encode(text, special=False)
    assert ids == bpe.hugging_face(special=False).encode(text, add_special_tokens=False).ids
    scored = range(context // 2, context - 1)
    windows, total, count = [], 0.0, 0
    for start in range(0, chunks * context, context):
        window = ids[start : start + context]
        logits = model.forward(window, model.new_cache(), positions=scored)
        peak = logits.max(axis=1)
        log_sum = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
        nll = (log_sum - logits[np.arange(len(scored)), window[scored.start + 1 :]]).sum()
        total, count = total + nll, count + len(scored)
        windows.append(
            {
                "nll": rounded(nll),
                "running_nll": rounded(total),
                "running_ppl": rounded(np.exp(total / count)),
            }
        )
    print(f"perplexity {np.exp(total / count):.5f} over {count} tokens")
    return {
        "context": context,
        "chunks": chunks,
        "text_tokens": len(ids),
        "tokens": count,
        "nll": rounded(total),
        "ppl": rounded(np.exp(total / count)),
        "windows": windows,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("gpl3", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    assert sha256_of(args.model) == MODEL_SHA256, f"{args.model} is not the default model"
    assert sha256_of(args.gpl3) == GPL3_SHA256, f"{args.gpl3} is another text"
    args.out.mkdir(parents=True, exist_ok=True)

    file = GgufFile(args.model)
    bpe, model = Bpe.from_gguf(file), Llama(file)
    licence = args.gpl3.read_text(encoding="utf-8")
    head = fixture.header(PROGRAM, AGAIN, PACKAGES)
    head["model"] = {"file": "SmolLM2-135M-Instruct-Q4_1.gguf", "sha256": MODEL_SHA256}

    jobs = {name: (text, None) for name, text in PROMPTS.items()}
    template = file.get("tokenizer.chat_template")
    jobs["chat"] = (chat_render.render(template, QUESTION, True), QUESTION)
    jobs["long"] = (first_tokens(bpe, licence[licence.index(LONG_START) :], LONG_TOKENS), None)
    for name, (text, messages) in jobs.items():
        golden = answer(model, bpe, head, name, text, messages)
        fixture.write_json(args.out / f"{name}.json", golden)

    source = {"text": {"path": "/usr/share/common-licenses/GPL-3", "sha256": GPL3_SHA256}}
    fixture.write_json(
        args.out / "ppl-gpl3.json", head | source | perplexity(model, bpe, licence, 256, 4)
    )


if __name__ == "__main__":
    main()
