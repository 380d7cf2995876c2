#!/usr/bin/env python3
"""Golden results of `temper eval kl` and `temper eval choices`, of the tiny models.

    python3 tools/golden/make_eval_goldens.py tests/golden/tiny tests/golden/eval

The logits are those of llama_reference.py, in float64; the ids come from bpe.py. The statistics of
a divergence are llama.cpp's, choices are split and counted as EleutherAI's harness does.

Needs gguf 0.19.0, numpy 2.4.6, regex 2026.11.19. A few seconds.
"""

import argparse
import json
import pathlib

import numpy as np

import fixture
from bpe import Bpe
from llama_reference import GgufFile, Llama, rounded, sha256_of

PROGRAM = "tools/golden/make_eval_goldens.py"
AGAIN = f"python3 {PROGRAM} tests/golden/tiny tests/golden/eval"
PACKAGES = ["gguf", "numpy", "regex"]

TEXT = (
    "A kernel that is right and slow can be made fast; one that is fast and wrong cannot be made "
    "right. So the first thing that is written is the reference, plainly, and the second the test "
    "that compares. Only then come tiles, registers and the order in which memory is read: each "
    "change is measured, and what does not pay is taken out again, with a note of why it was tried."
)

# Each line once: letters and places, both names of the prompt, white space on either side of the
# boundary or on none, choices that begin alike, bytes that are no letters, an empty prompt.
QUESTIONS = [
    {"question": "The kernel reads", "choices": ["a tile", "weights", "and"], "answer": 0},
    {"prompt": "A norm keeps its length ", "choices": ["in bounds", "the sum"], "answer": "B"},
    {"prompt": "What every layer\n", "choices": [" adds", "\nwrites", "carries"], "answer": "c"},
    {"question": "The resid", "choices": ["ual stream", "ent", "e"], "answer": "A"},
    {"prompt": "Café — ", "choices": ["déjà vu", "naïve 123", "😊"], "answer": 2},
    {"prompt": "", "choices": ["The kernel", "writes the sum of it all"], "answer": 1},
    {"question": "It is", "choices": ["a tile of weights", "a tile of sums"], "answer": 1},
]
JOIN = " "
TIGHT = 4  # of the first so many questions, the scores with nothing between prompt and choice too


def log_softmax(logits):
    peak = logits.max(axis=-1, keepdims=True)
    return logits - peak - np.log(np.exp(logits - peak).sum(axis=-1, keepdims=True))


def divergence(model, against, bpe, context):
    ids = bpe.encode(TEXT, special=False)
    scored = range(context // 2, context - 1)
    p, q, targets = [], [], []
    for start in range(0, len(ids) // context * context, context):
        window = ids[start : start + context]
        p.append(log_softmax(against.forward(window, against.new_cache(), positions=scored)))
        q.append(log_softmax(model.forward(window, model.new_cache(), positions=scored)))
        targets += window[scored.start + 1 :]
    p, q, rows = np.concatenate(p), np.concatenate(q), np.arange(len(targets))
    kl = (np.exp(p) * (p - q)).sum(axis=1)
    change = np.exp(q[rows, targets]) - np.exp(p[rows, targets])
    value = {
        "tokens": len(targets),
        "ppl": np.exp(-q[rows, targets].mean()),
        "ppl_against": np.exp(-p[rows, targets].mean()),
        "kl_mean": kl.mean(),
        "kl_stderr": np.sqrt(kl.var() / (len(kl) - 1)),
        "kl_median": np.percentile(kl, 50),
        "kl_90": np.percentile(kl, 90),
        "kl_95": np.percentile(kl, 95),
        "kl_99": np.percentile(kl, 99),
        "kl_max": kl.max(),
        "same_best": (p.argmax(axis=1) == q.argmax(axis=1)).mean(),
        "p_change_mean": change.mean(),
        "p_change_rms": np.sqrt((change**2).mean()),
    }
    return {key: number if key == "tokens" else rounded(number, 7) for key, number in value.items()}


def score(model, bpe, prompt, choice, join=JOIN):
    """The sum of the log-probabilities of the choice's tokens, and where they begin."""
    spaced = not prompt or prompt[-1].isspace() or choice[0].isspace()
    whole = bpe.encode(prompt + ("" if spaced else join) + choice, special=False)
    first = min(len(bpe.encode(prompt.rstrip(), special=False)), len(whole) - 1)
    if first == 0:
        whole, first = [model.file.get("tokenizer.ggml.bos_token_id"), *whole], 1
    rows = range(first - 1, len(whole) - 1)
    logs = log_softmax(model.forward(whole[:-1], model.new_cache(), positions=rows))
    return logs[np.arange(len(rows)), whole[first:]].sum()


def choices(model, bpe):
    out, right, right_norm = [], 0, 0
    for number, question in enumerate(QUESTIONS):
        prompt = question.get("question", question.get("prompt"))
        logs = np.array([score(model, bpe, prompt, text) for text in question["choices"]])
        sizes = np.array([len(text.encode()) for text in question["choices"]])
        answer = question["answer"]
        place = answer if isinstance(answer, int) else ord(answer.upper()) - ord("A")
        best, best_norm = int(logs.argmax()), int((logs / sizes).argmax())
        right, right_norm = right + (best == place), right_norm + (best_norm == place)
        out.append({
            "data": json.dumps(question, ensure_ascii=number % 2 == 0),
            "answer": place,
            "best": best,
            "best_norm": best_norm,
            "logprobs": rounded(logs),
            "bytes": [int(size) for size in sizes],
        })
        if number < TIGHT:
            tight = [score(model, bpe, prompt, text, "") for text in question["choices"]]
            out[-1]["tight_logprobs"] = rounded(tight)
    count = len(QUESTIONS)
    acc, norm = right / count, right_norm / count
    assert acc != norm and 0 < acc < 1 and 0 < norm < 1, "the lines tell the two apart"
    return {
        "questions": out,
        "acc": rounded(acc, 7),
        "acc_stderr": rounded(np.sqrt(acc * (1 - acc) / (count - 1)), 7),
        "acc_norm": rounded(norm, 7),
        "acc_norm_stderr": rounded(np.sqrt(norm * (1 - norm) / (count - 1)), 7),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tiny", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    head = fixture.header(PROGRAM, AGAIN, PACKAGES)
    paths = {name: args.tiny / f"llama-{name}.gguf" for name in ("f32", "q4_1")}
    files = {name: GgufFile(path) for name, path in paths.items()}
    models = {name: Llama(file) for name, file in files.items()}
    bpe = Bpe.from_gguf(files["q4_1"])
    for name in paths:
        head[name] = {"file": paths[name].name, "sha256": sha256_of(paths[name])}
    kl = {"text": TEXT, "context": 64}
    kl["result"] = divergence(models["q4_1"], models["f32"], bpe, 64)
    fixture.write_json(args.out / "kl.json", head | kl)
    fixture.write_json(args.out / "choices.json", head | choices(models["q4_1"], bpe))


if __name__ == "__main__":
    main()
