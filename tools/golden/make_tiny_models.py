#!/usr/bin/env python3
"""Tiny llama models with their reference logits: every weight type and every turn of the graph in a
few hundred KB.

    python3 tools/golden/make_tiny_models.py tests/golden/tiny

Each model has two layers, random weights that are the same on every machine, a byte-level BPE
vocabulary of 291 tokens, and a JSON file beside it with the float64 logits (llama_reference.py,
read back from the finished file) of prompts of 1, 17 and 300 tokens; the last one spans two blocks
of 256 cache positions. What a llama file can have differs from model to model:

    llama-f32    tied embedding, 2 query heads a KV head, an FFN of 72: no multiple of 32
    llama-f16    its own output.weight, rope_freqs.weight with llama 3's factors, adds BOS
    llama-q4_0   as many KV heads as query heads, output.weight Q8_0, attn_v F16 in layer 0
    llama-q4_1   the default mix: Q4_1, tied Q8_0 embedding, 3 query heads a KV head, 96 wide
    llama-q8_0   all Q8_0, output.weight too, rope base 500000
    llama-wide   Q4_0, embedding too; heads together wider (6 x 32) than the residual stream (64)

llama-f16 and llama-q8_0 split words as gpt-2 does, the others as smollm.

Needs gguf 0.19.0, numpy 2.4.6, regex 2026.11.19, tokenizers 0.23.3. A few seconds.
"""

import argparse
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, TokenType
from gguf.quants import quantize

import fixture
from bpe import PATTERNS, Bpe, byte_alphabet, split_words
from llama_reference import GgufFile, Llama, greedy, rounded, sha256_of

PROGRAM = "tools/golden/make_tiny_models.py"
AGAIN = f"python3 {PROGRAM} tests/golden/tiny"
PACKAGES = ["gguf", "numpy", "regex", "tokenizers"]

N_LAYER, CONTEXT, EPSILON = 2, 4096, 1e-5
GREEDY_TOKENS = 16
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
N_MERGES = 32

# Shape and weight type, then what makes the model special. The seeds were tried until no two logits
# of a greedy answer were closer than 2e-3 of the range and no end token came: a right engine then
# gives these tokens.
MODELS = {
    "llama-f32": dict(
        seed=2, n_embd=64, n_ff=72, n_head=4, n_kv=2, head_dim=16, type=Type.F32),
    "llama-f16": dict(
        seed=4, n_embd=64, n_ff=96, n_head=4, n_kv=2, head_dim=16, type=Type.F16,
        output=Type.F16, llama3_rope=True, add_bos=True, pre="gpt-2"),
    "llama-q4_0": dict(
        seed=2, n_embd=64, n_ff=96, n_head=4, n_kv=4, head_dim=16, type=Type.Q4_0,
        output=Type.Q8_0, odd={"blk.0.attn_v.weight": Type.F16}),
    "llama-q4_1": dict(
        seed=2, n_embd=96, n_ff=160, n_head=6, n_kv=2, head_dim=16, type=Type.Q4_1,
        embedding=Type.Q8_0),
    "llama-q8_0": dict(
        seed=1, n_embd=64, n_ff=160, n_head=4, n_kv=2, head_dim=16, type=Type.Q8_0,
        output=Type.Q8_0, rope_base=500000.0, pre="gpt-2"),
    "llama-wide": dict(
        seed=3, n_embd=64, n_ff=96, n_head=6, n_kv=3, head_dim=32, type=Type.Q4_0),
}

TEXT = """\
The kernel reads a tile of weights, multiplies it with a tile of activations and writes the sum. \
A residual stream carries what every layer adds; a norm keeps its length in bounds, and the \
rotation of queries and keys tells near from far. When the cache grows past its first block, the \
second block must be read at the right place: position 256 is the first token there, and an index\
 that is off by one shows here and nowhere else. Ωμέγα, 数字 0123456789, naïve café, emoji 😊 — and \
code: for (i = 0; i < n; i++) { sum += x[i] * w[i]; } The end of the text is not the end of the \
test, since the test goes on for as many tokens as it was told to read, and then it reads a few \
more.
"""

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Stream:
    """Random numbers that depend on nothing but the seed: splitmix64 in integers, then sums of four
    uniforms, all exact in double precision, so that no library version and no libm changes a bit of
    the files.
    """

    def __init__(self, seed):
        self.state = np.uint64(seed)

    def integers(self, count):
        steps = np.arange(1, count + 1, dtype=np.uint64)
        with np.errstate(over="ignore"):
            x = self.state + steps * np.uint64(0x9E3779B97F4A7C15)
            self.state = x[-1]
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return x ^ (x >> np.uint64(31))

    def normal(self, shape, scale):
        """About normal, of mean 0 and standard deviation scale; f32."""
        bits = self.integers(4 * int(np.prod(shape))).reshape(*shape, 4) >> np.uint64(11)
        sums = (bits.astype(np.float64) * 2.0**-53).sum(axis=-1)
        return ((sums - 2.0) * np.sqrt(3.0) * scale).astype(np.float32)


def train_merges(text, count):
    """The commonest pair of symbols, again and again; ties go to the pair that sorts first."""
    alphabet = byte_alphabet()
    words = split_words(PATTERNS["smollm"], text)
    words = [[alphabet[byte] for byte in word.encode()] for word in words]
    merges = []
    for _ in range(count):
        tally = {}
        for word in words:
            for pair in zip(word, word[1:]):
                tally[pair] = tally.get(pair, 0) + 1
        best = min(tally, key=lambda pair: (-tally[pair], pair))
        merges.append(" ".join(best))
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [word[i] + word[i + 1]]
                i += 1
    return merges


def vocabulary():
    merges = train_merges(TEXT, N_MERGES)
    words = list(byte_alphabet().values()) + [merge.replace(" ", "") for merge in merges]
    tokens = SPECIALS + words
    types = [TokenType.CONTROL] * len(SPECIALS) + [TokenType.NORMAL] * len(words)
    assert len(set(tokens)) == len(tokens) == 291
    return tokens, types, merges


def llama3_factors(head_dim, base, factor=8.0, low=1.0, high=4.0, original=64):
    """What a converter writes into rope_freqs.weight for rope_type llama3: 1 for short waves,
    factor for waves longer than the original context, a blend between; scaled down to a context of
    64, so that all three occur.
    """
    wave = 2 * np.pi * base ** (np.arange(0, head_dim, 2) / head_dim)
    smooth = (original / wave - low) / (high - low)
    blended = 1 / ((1 - smooth) / factor + smooth)
    long = np.where(wave > original / low, factor, blended)
    return np.where(wave < original / high, 1.0, long).astype(np.float32)


def tensors(spec, n_vocab):
    """(name, f32 values [rows, columns], type) in the order of the file. The scales keep the
    residual stream near 1, make attention choosy (scores of a few units) and spread the logits."""
    stream, n_embd = Stream(spec["seed"]), spec["n_embd"]
    q_width, kv_width = spec["n_head"] * spec["head_dim"], spec["n_kv"] * spec["head_dim"]
    kind, odd = spec["type"], spec.get("odd", {})

    def weight(tensor, rows, columns, gain):
        values = stream.normal((rows, columns), gain / np.sqrt(columns))
        return tensor, values, odd.get(tensor, kind)

    def norm(tensor):
        return tensor, 1 + stream.normal((n_embd,), 0.25), Type.F32

    yield "token_embd.weight", stream.normal((n_vocab, n_embd), 0.3), spec.get("embedding", kind)
    if spec.get("llama3_rope"):
        factors = llama3_factors(spec["head_dim"], spec.get("rope_base", 10000.0))
        yield "rope_freqs.weight", factors, Type.F32
    for i in range(N_LAYER):
        yield norm(f"blk.{i}.attn_norm.weight")
        yield weight(f"blk.{i}.attn_q.weight", q_width, n_embd, 1.5)
        yield weight(f"blk.{i}.attn_k.weight", kv_width, n_embd, 1.5)
        yield weight(f"blk.{i}.attn_v.weight", kv_width, n_embd, 1.0)
        yield weight(f"blk.{i}.attn_output.weight", n_embd, q_width, 1.5)
        yield norm(f"blk.{i}.ffn_norm.weight")
        yield weight(f"blk.{i}.ffn_gate.weight", spec["n_ff"], n_embd, 1.5)
        yield weight(f"blk.{i}.ffn_up.weight", spec["n_ff"], n_embd, 1.5)
        yield weight(f"blk.{i}.ffn_down.weight", n_embd, spec["n_ff"], 1.0)
    yield norm("output_norm.weight")
    if "output" in spec:
        yield "output.weight", stream.normal((n_vocab, n_embd), 0.3), spec["output"]


def write_model(path, spec):
    tokens, types, merges = vocabulary()
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_description(f"random weights, made by {PROGRAM}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(spec["n_embd"])
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(spec["n_ff"])
    writer.add_head_count(spec["n_head"])
    writer.add_head_count_kv(spec["n_kv"])
    if spec["n_head"] * spec["head_dim"] != spec["n_embd"]:
        writer.add_key_length(spec["head_dim"])
        writer.add_value_length(spec["head_dim"])
    writer.add_rope_dimension_count(spec["head_dim"])
    writer.add_layer_norm_rms_eps(EPSILON)
    if "rope_base" in spec:
        writer.add_rope_freq_base(spec["rope_base"])
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(spec.get("pre", "smollm"))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(spec.get("add_bos", False))
    writer.add_chat_template(TEMPLATE)
    for name, values, kind in tensors(spec, len(tokens)):
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert path.stat().st_size < 300_000


def prompts(bpe, add_bos):
    """(text, ids): ids is what the model reads: BOS if the file says so, then the text's tokens.
    The text starts at the first place in TEXT where the cut after so many tokens falls between two
    characters and changes no token.
    """
    twin = bpe.hugging_face()
    bos = [bpe.ids["<|im_start|>"]] if add_bos else []
    for count in (1, 17, 300):
        for start in range(len(TEXT)):
            ids = bpe.encode(TEXT[start:])[: count - len(bos)]
            text = bpe.decode(ids)
            if bpe.encode(text) == ids:
                break
        assert ids == twin.encode(text, add_special_tokens=False).ids
        yield text, bos + ids


def watched(count):
    """The last position, and where something changes: the second token, around the end of the first
    block of 256."""
    return sorted({0, 1, count // 2, 254, 255, 256, 257, count - 1} & set(range(count)))


def reference(path, program=PROGRAM, again=AGAIN, reader=GgufFile):
    file = reader(path)
    model, bpe = Llama(file), Bpe.from_gguf(file)
    out = fixture.header(program, again, PACKAGES)
    out["model"] = {"file": path.name, "sha256": sha256_of(path)}
    out["config"] = {
        "n_layer": model.n_layer,
        "n_embd": model.n_embd,
        "n_head": model.n_head,
        "n_kv": model.n_kv,
        "head_dim": model.head_dim,
        "n_ff": file.get("llama.feed_forward_length"),
        "n_vocab": len(bpe.tokens),
        "context": CONTEXT,
        "rope_base": file.get("llama.rope.freq_base", 10000.0),
        "add_bos": file.get("tokenizer.ggml.add_bos_token"),
        "pre": file.get("tokenizer.ggml.pre"),
    }
    out["prompts"] = []
    for text, ids in prompts(bpe, out["config"]["add_bos"]):
        cache, trace, places = model.new_cache(), [], watched(len(ids))
        logits = model.forward(ids, cache, places, trace)
        answer = greedy(model, cache, logits[-1], GREEDY_TOKENS)
        spread = float(logits[-1].max() - logits[-1].min())
        assert len(ids) in (1, 17, 300) and min(answer["gaps"]) > 2e-3 * spread, path.name
        assert not {bpe.ids["<|endoftext|>"], bpe.ids["<|im_end|>"]} & set(answer["ids"]), path.name
        out["prompts"].append(
            {
                "text": text,
                "ids": ids,
                "range": rounded(spread),
                "logits": [
                    {"position": place, "values": rounded(row)}
                    for place, row in zip(places, logits)
                ],
                "residual": [rounded(row) for row in trace],
                "greedy": answer,
            }
        )
        print(
            f"{path.stem} {len(ids)} tokens: range {spread:.2f}, "
            f"smallest gap {min(answer['gaps']):.3f}, first {answer['ids'][:6]}"
        )
    return out


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, spec in MODELS.items():
        path = args.out / f"{name}.gguf"
        write_model(path, spec)
        print(f"{path.stat().st_size:8d} {path}")
        fixture.write_json(args.out / f"{name}.json", reference(path))


if __name__ == "__main__":
    main()
