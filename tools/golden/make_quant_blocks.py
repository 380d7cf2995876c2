#!/usr/bin/env python3
"""Quantised weights by the gguf package: blocks and what they mean, values and what they become,
and tiny llama models in the K types.

    python3 tools/golden/make_quant_blocks.py tests/golden/quant

TYPE.bin and TYPE.f32 (Q4_0 ... Q6_K, F16, BF16): blocks that take every byte apart, and the float32
values that the gguf package dequantises them to. The quants of block b at place i are byte
167 b + 59 i + b i mod 256, so that every place sees many values or all of them; the f16 factors
walk through SCALES, in which both zeros, subnormals and the largest magnitudes come first; every
eighth block of a K type has its scale bytes all 255 or all 0, in turn.

input.f32 is 4 rows of 2560 values for the quantisers, row-TYPE.bin what the gguf package makes of
them.

llama-TYPE.gguf is one layer, 256 wide, of random blocks whose factors are set so that the weights
have about the deviation a model wants; llama-TYPE.json the answers in the schema of
tests/golden/tiny.

Needs gguf 0.19.0, numpy 2.4.6, regex 2026.11.19, tokenizers 0.23.3. Half a minute.
"""

import argparse
import hashlib
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGUFWriter
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

import fixture
from make_tiny_models import CONTEXT, EPSILON, TEMPLATE, Stream, reference, vocabulary

PROGRAM = "tools/golden/make_quant_blocks.py"
AGAIN = f"python3 {PROGRAM} tests/golden/quant"

# Where a block keeps its f16 factors and, in the K types, its scale bytes.
FACTORS = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q2_K: [80, 82],
    Type.Q3_K: [108],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
}
SCALE_BYTES = {
    Type.Q2_K: (0, 16),
    Type.Q3_K: (96, 108),
    Type.Q4_K: (4, 16),
    Type.Q5_K: (4, 16),
    Type.Q6_K: (192, 208),
}

# f16 bit patterns: 0, -0, the smallest and largest subnormals, the smallest normal, 1, -1, the
# largest, then ordinary ones.
SCALES = [
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x03FF,
    0x83FF,
    0x0400,
    0x8400,
    0x3C00,
    0xBC00,
    0x7BFF,
    0xFBFF,
    0x0200,
    0x2E66,
    0xA51F,
    0x1234,
    0x9C3B,
    0x211D,
    0x3555,
    0xB800,
    0x0C81,
    0x47AE,
    0xD0F0,
]

QUANTISED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.F16, Type.BF16]
ROWS, COLUMNS = 4, 2560


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# ---- blocks --------------------------------------------------------------------------------------


def put_f16(blocks, at, bits):
    blocks[:, at] = bits & 0xFF
    blocks[:, at + 1] = bits >> 8


def blocks_of(kind):
    """uint8 [blocks, bytes of a block]; as many as make 8192 values."""
    size, width = GGML_QUANT_SIZES[kind]
    count = 8192 // size
    b, i = np.arange(count)[:, None], np.arange(width)[None, :]
    blocks = ((167 * b + 59 * i + b * i) & 0xFF).astype(np.uint8)
    if kind in SCALE_BYTES:
        first, last = SCALE_BYTES[kind]
        blocks[5::16, first:last] = 0xFF
        blocks[13::16, first:last] = 0x00
    # The second factor walks at another pace, so that all pairs of kinds occur.
    for step, at in zip((1, 2), FACTORS[kind]):
        walk = [
            SCALES[(step * n + n // len(SCALES) * (step - 1)) % len(SCALES)] for n in range(count)
        ]
        put_f16(blocks, at, np.array(walk, np.uint16))
    return blocks


def words_of(kind):
    """Every sign, every exponent, eight mantissas, as little-endian 16-bit words; finite ones only.
    Whatever is subnormal in float32 comes last."""
    bits = 10 if kind == Type.F16 else 7
    mantissas = sorted(
        {0, 1, 2, (1 << bits) // 3, 1 << (bits - 1), (1 << bits) - 2, (1 << bits) - 1, 37}
    )
    exponents = range((1 << (15 - bits)) - 1)
    words = [
        sign << 15 | exponent << bits | mantissa
        for exponent in exponents
        for sign in (0, 1)
        for mantissa in mantissas
    ]
    if kind == Type.BF16:
        words = [w for w in words if w & 0x7F80 or not w & 0x7F] + [
            w for w in words if not w & 0x7F80 and w & 0x7F
        ]
    return np.array(words, "<u2").view(np.uint8)


def write_blocks(root):
    out = []
    for kind in [*FACTORS, Type.F16, Type.BF16]:
        raw = blocks_of(kind) if kind in FACTORS else words_of(kind)
        data = raw.view(np.float16) if kind == Type.F16 else raw
        values = dequantize(data, kind).astype("<f4").reshape(-1)
        assert np.isfinite(values).all()
        tiny = np.abs(values) < np.finfo(np.float32).tiny
        subnormal = int((tiny & (values != 0)).sum())
        (root / f"{kind.name}.bin").write_bytes(raw.tobytes())
        (root / f"{kind.name}.f32").write_bytes(values.tobytes())
        size, width = GGML_QUANT_SIZES[kind]
        out.append(
            dict(
                type=kind.name,
                id=int(kind),
                block_values=size,
                block_bytes=width,
                blocks=raw.size // width,
                bin=f"{kind.name}.bin",
                bin_sha256=sha256(raw.tobytes()),
                f32=f"{kind.name}.f32",
                f32_sha256=sha256(values.tobytes()),
                subnormal_at_end=subnormal,
            )
        )
    return out


# ---- quantisers ----------------------------------------------------------------------------------


def quantiser_input():
    """Four rows: ordinary; ordinary with one outlier a block and blocks of zeros, -0 and one value;
    magnitudes from 1e-9 to 1e4; small integers, whose halves are ties once divided."""
    stream = Stream(77)
    rows = np.stack([stream.normal((COLUMNS,), 1.0) for _ in range(ROWS)])
    rows[1, 7::32] *= 20
    rows[1, 64:96], rows[1, 96:128], rows[1, 128:160] = 0.0, -0.0, 0.375
    rows[1, 160:192], rows[1, 191] = 0.0, -1.5
    powers = np.repeat(10.0 ** np.linspace(-9, 4, COLUMNS // 32), 32)
    rows[2] = (rows[2] * powers).astype(np.float32)
    rows[3] = np.round(rows[3] * 4).astype(np.float32)
    rows[3, ::64], rows[3, 31::64] = 8.0, -8.0  # both signs of the largest magnitude
    return rows.astype("<f4")


def write_quantised(root):
    rows = quantiser_input()
    (root / "input.f32").write_bytes(rows.tobytes())
    out = dict(input="input.f32", input_sha256=sha256(rows.tobytes()), rows=ROWS, columns=COLUMNS)
    out["outputs"] = []
    for kind in QUANTISED:
        data = np.ascontiguousarray(quantize(rows, kind)).tobytes()
        assert len(data) == ROWS * COLUMNS // GGML_QUANT_SIZES[kind][0] * GGML_QUANT_SIZES[kind][1]
        name = f"row-{kind.name}.bin"
        (root / name).write_bytes(data)
        out["outputs"].append(dict(type=kind.name, bin=name, bin_sha256=sha256(data)))
    return out


# ---- tiny models ---------------------------------------------------------------------------------

# The K types as files have them: q4_k is Q4_K_M's mix. seed: as in make_tiny_models.py.
MODELS = {
    "llama-q2_k": dict(seed=11, type=Type.Q2_K),
    "llama-q3_k": dict(seed=2, type=Type.Q3_K),
    "llama-q4_k": dict(
        seed=1,
        type=Type.Q4_K,
        mix={"token_embd": Type.Q6_K, "attn_v": Type.Q6_K, "ffn_down": Type.Q6_K},
    ),
    "llama-q5_k": dict(seed=18, type=Type.Q5_K),
    "llama-q6_k": dict(seed=1, type=Type.Q6_K),
}
N_EMBD, N_FF, N_HEAD, N_KV, HEAD_DIM = 256, 256, 4, 1, 64
MIDDLE = {Type.Q2_K: 1.5, Type.Q4_K: 7.5, Type.Q5_K: 15.5}  # the minimum's factor over the scale's


def random_blocks(stream, rows, columns, kind, deviation):
    """Every byte random but the factors: one that gives the deviation, times 0.75 to 1.25."""
    size, width = GGML_QUANT_SIZES[kind]
    count = rows * columns // size
    bits = stream.integers(count * width // 8 + 1)
    blocks = bits.view(np.uint8)[: count * width].reshape(count, width).copy()
    swing = (stream.integers(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53 * 0.5 + 0.75

    def factors(unit):
        for scale, at in zip((1.0, MIDDLE.get(kind)), FACTORS[kind]):
            put_f16(blocks, at, (unit * scale).astype(np.float16).view(np.uint16))

    factors(np.ones(count))
    spread = float(dequantize(blocks, kind).astype(np.float64).std())
    factors(deviation / spread * swing)
    return blocks.reshape(rows, columns // size * width)


def tensors(spec, n_vocab):
    stream = Stream(spec["seed"])

    def weight(name, rows, columns, deviation):
        short = name.split(".")[-2]
        kind = spec.get("mix", {}).get(short, spec["type"])
        return name, random_blocks(stream, rows, columns, kind, deviation), kind

    def norm(name, mean=1):
        return name, mean + stream.normal((N_EMBD,), 0.25), Type.F32

    yield weight("token_embd.weight", n_vocab, N_EMBD, 0.06)
    yield norm("blk.0.attn_norm.weight")
    yield weight("blk.0.attn_q.weight", N_HEAD * HEAD_DIM, N_EMBD, 0.09)
    yield weight("blk.0.attn_k.weight", N_KV * HEAD_DIM, N_EMBD, 0.09)
    yield weight("blk.0.attn_v.weight", N_KV * HEAD_DIM, N_EMBD, 0.06)
    yield weight("blk.0.attn_output.weight", N_EMBD, N_HEAD * HEAD_DIM, 0.09)
    yield norm("blk.0.ffn_norm.weight")
    yield weight("blk.0.ffn_gate.weight", N_FF, N_EMBD, 0.09)
    yield weight("blk.0.ffn_up.weight", N_FF, N_EMBD, 0.09)
    yield weight("blk.0.ffn_down.weight", N_EMBD, N_FF, 0.06)
    yield norm("output_norm.weight", 3)


def write_model(path, spec):
    tokens, types, merges = vocabulary()
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_description(f"random weights, made by {PROGRAM}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(1)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(N_HEAD)
    writer.add_head_count_kv(N_KV)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, values, kind in tensors(spec, len(tokens)):
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    index = fixture.header(PROGRAM, AGAIN, ["gguf", "numpy"])
    index["blocks"] = write_blocks(args.out)
    index["quantised"] = write_quantised(args.out)
    fixture.write_json(args.out / "quant.json", index)
    for name, spec in MODELS.items():
        path = args.out / f"{name}.gguf"
        write_model(path, spec)
        print(f"{path.stat().st_size:8d} {path}")
        fixture.write_json(args.out / f"{name}.json", reference(path, PROGRAM, AGAIN))


if __name__ == "__main__":
    main()
