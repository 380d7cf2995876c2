#!/usr/bin/env python3
"""Types that --widen takes to F16, by the gguf package: blocks and what they mean, and a tiny llama
model that has them all.

    python3 tools/golden/make_widened.py tests/golden/widen

TYPE.bin and TYPE.f32: blocks in which every row of the type's grid comes up at least once, all bits
that name no row are pseudo-random, and the f16 factors walk through the SCALES of
make_quant_blocks.py (MXFP4's exponents through all 256); and the float32 values that the gguf
package dequantises them to. Some of MXFP4's are infinite. It does not know Q1_0 and Q2_0: their
definition is OWN below.

llama.gguf is two layers, 256 wide, of random blocks; llama.json the answers in the schema of
tests/golden/tiny, with every weight of these types rounded to float16 first.

Needs gguf 0.19.0, numpy 2.4.6, regex 2026.11.19, tokenizers 0.23.3. A few seconds.
"""

import argparse
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGUFWriter
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

import fixture
import llama_reference
from make_quant_blocks import SCALES, put_f16, sha256
from make_tiny_models import CONTEXT, EPSILON, TEMPLATE, Stream, reference, vocabulary

PROGRAM = "tools/golden/make_widened.py"
AGAIN = f"python3 {PROGRAM} tests/golden/widen"

# Bytes of a block that hold an f16 factor. MXFP4 has a power of two, IQ1_M a factor in nibbles.
FACTORS = {
    Type.IQ1_S: 0, Type.IQ2_XXS: 0, Type.IQ2_XS: 0, Type.IQ2_S: 0, Type.IQ3_XXS: 0, Type.IQ3_S: 0,
    Type.IQ4_NL: 0, Type.IQ4_XS: 0, Type.TQ1_0: 52, Type.TQ2_0: 64,
}  # fmt: skip
KINDS = [*FACTORS, Type.IQ1_M, Type.MXFP4]
BLOCKS = {Type.IQ1_S: 64, Type.IQ1_M: 64, Type.IQ2_S: 32, Type.IQ4_NL: 64, Type.MXFP4: 256}

# What gguf 0.19.0 does not have, as llama.cpp's ggml-common.h and ggml-quants.c define it:
# GGUF's number, elements and bytes of a block, and its values.
OWN = {
    "Q1_0": (41, 128, 18, lambda d, q: d * (np.unpackbits(q, 1, bitorder="little") * 2.0 - 1)),
    "Q2_0": (42, 64, 18, lambda d, q: d * ((q.repeat(4, 1) >> ([0, 2, 4, 6] * 16) & 3) - 1.0)),
}


# ---- blocks --------------------------------------------------------------------------------------


def put_factor(blocks, kind, bits):
    """bits: uint16 [blocks], a factor each; for MXFP4 an exponent."""
    if kind == Type.MXFP4:
        blocks[:, 0] = bits
    elif kind == Type.IQ1_M:
        for i in range(4):
            at = 48 + 2 * i + 1
            blocks[:, at] = (blocks[:, at] & 0x0F) | ((bits >> (4 * i) & 0x0F) << 4)
    else:
        put_f16(blocks, FACTORS[kind], bits)


def put_bits(blocks, at, shift, width, values):
    """values: [blocks]; replaces `width` bits of byte `at`."""
    mask = ((1 << width) - 1) << shift
    blocks[:, at] = (blocks[:, at] & (0xFF ^ mask)) | (values << shift & mask)


def put_rows(blocks, kind):
    """Rows of the grid one after the other, in steps of 5 so that neighbours differ."""
    counts = {Type.IQ2_XXS: 256, Type.IQ2_XS: 512, Type.IQ2_S: 1024, Type.IQ3_XXS: 256,
              Type.IQ3_S: 512, Type.IQ1_S: 2048, Type.IQ1_M: 2048}  # fmt: skip
    if kind not in counts:
        return
    a_block = 64 if kind in (Type.IQ3_XXS, Type.IQ3_S) else 32
    assert len(blocks) * a_block >= counts[kind]
    for i in range(a_block):
        row = (np.arange(len(blocks)) * a_block + i) * 5 % counts[kind]
        low, high = row & 0xFF, row >> 8
        if kind == Type.IQ2_XXS:
            blocks[:, 2 + i // 4 * 8 + i % 4] = low
        elif kind == Type.IQ2_XS:
            blocks[:, 2 + 2 * i] = low
            put_bits(blocks, 3 + 2 * i, 0, 1, high)
        elif kind == Type.IQ2_S:
            blocks[:, 2 + i] = low
            put_bits(blocks, 66 + i // 4, i % 4 * 2, 2, high)
        elif kind == Type.IQ3_XXS:
            blocks[:, 2 + i] = low
        elif kind == Type.IQ3_S:
            blocks[:, 2 + i] = low
            put_bits(blocks, 66 + i // 8, i % 8, 1, high)
        elif kind == Type.IQ1_S:
            blocks[:, 2 + i] = low
            for bit in range(3):
                place = i % 4 * 3 + bit
                put_bits(blocks, 34 + i // 4 * 2 + place // 8, place % 8, 1, high >> bit & 1)
        else:
            blocks[:, i] = low
            put_bits(blocks, 32 + i // 2, i % 2 * 4, 3, high)


def blocks_of(kind):
    count, width = BLOCKS.get(kind, 16), GGML_QUANT_SIZES[kind][1]
    bits = Stream(int(kind)).integers(count * width // 8 + 1)
    blocks = bits.view(np.uint8)[: count * width].reshape(count, width).copy()
    put_rows(blocks, kind)
    walk = range(256) if kind == Type.MXFP4 else (SCALES * 12)[:count]
    put_factor(blocks, kind, np.array(walk, np.uint16))
    return blocks


def own_blocks():
    for name, (number, size, width, values) in OWN.items():
        bits = Stream(number).integers(2 * width)
        raw = bits.view(np.uint8).reshape(16, width).copy()
        put_f16(raw, 0, np.array(SCALES[:16], np.uint16))
        factors = raw[:, :2].copy().view("<f2").astype(np.float64)
        yield name, number, size, width, raw, values(factors, raw[:, 2:])


def known_blocks():
    for kind in KINDS:
        raw = blocks_of(kind)
        with np.errstate(over="ignore"):
            values = dequantize(raw, kind)
        yield kind.name, int(kind), *GGML_QUANT_SIZES[kind], raw, values


def write_blocks(root):
    out = []
    for name, number, size, width, raw, values in [*known_blocks(), *own_blocks()]:
        values = values.astype("<f4").reshape(-1)
        assert not np.isnan(values).any() and len(values) == len(raw) * size
        (root / f"{name}.bin").write_bytes(raw.tobytes())
        (root / f"{name}.f32").write_bytes(values.tobytes())
        out.append(
            dict(
                type=name,
                id=number,
                block_values=size,
                block_bytes=width,
                blocks=len(raw),
                bin=f"{name}.bin",
                bin_sha256=sha256(raw.tobytes()),
                f32=f"{name}.f32",
                f32_sha256=sha256(values.tobytes()),
            )
        )
    return out


# ---- a model -------------------------------------------------------------------------------------

# Tried until no gap was below 2e-3 of the range, as in make_tiny_models.py.
SEED = 12
N_LAYER, N_EMBD, N_HEAD, N_KV, HEAD_DIM = 2, 256, 4, 1, 64
TYPES = {
    "token_embd": Type.IQ4_XS,
    "blk.0.attn_q": Type.IQ3_S, "blk.0.attn_k": Type.IQ2_XS, "blk.0.attn_v": Type.IQ4_NL,
    "blk.0.attn_output": Type.IQ2_S, "blk.0.ffn_gate": Type.IQ2_XXS, "blk.0.ffn_up": Type.IQ3_XXS,
    "blk.0.ffn_down": Type.MXFP4,
    "blk.1.attn_q": Type.TQ2_0, "blk.1.attn_k": Type.TQ1_0, "blk.1.attn_v": Type.Q8_0,
    "blk.1.attn_output": Type.IQ1_M, "blk.1.ffn_gate": Type.IQ1_S, "blk.1.ffn_up": Type.IQ4_NL,
    "blk.1.ffn_down": Type.IQ4_XS,
}  # fmt: skip


def random_blocks(stream, rows, kind, deviation):
    """Every byte random but the factor: one that gives the deviation, times 0.75 to 1.25."""
    size, width = GGML_QUANT_SIZES[kind]
    count = rows * N_EMBD // size
    bits = stream.integers(count * width // 8 + 1)
    blocks = bits.view(np.uint8)[: count * width].reshape(count, width).copy()
    swing = (stream.integers(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53 * 0.5 + 0.75

    def factors(unit):
        if kind == Type.MXFP4:
            put_factor(blocks, kind, np.round(np.log2(unit)).astype(np.int64) + 127)
        elif kind == Type.Q8_0:
            put_f16(blocks, 0, unit.astype(np.float16).view(np.uint16))
        else:
            put_factor(blocks, kind, unit.astype(np.float16).view(np.uint16))

    factors(np.ones(count))
    spread = float(dequantize(blocks, kind).astype(np.float64).std())
    factors(deviation / spread * swing)
    return blocks.reshape(rows, N_EMBD // size * width)


def tensors(n_vocab):
    stream = Stream(SEED)

    def weight(name, rows, deviation):
        kind = TYPES[name]
        return f"{name}.weight", random_blocks(stream, rows, kind, deviation), kind

    def norm(name, mean=1):
        return name, mean + stream.normal((N_EMBD,), 0.25), Type.F32

    yield weight("token_embd", n_vocab, 0.06)
    for i in range(N_LAYER):
        yield norm(f"blk.{i}.attn_norm.weight")
        yield weight(f"blk.{i}.attn_q", N_HEAD * HEAD_DIM, 0.09)
        yield weight(f"blk.{i}.attn_k", N_KV * HEAD_DIM, 0.09)
        yield weight(f"blk.{i}.attn_v", N_KV * HEAD_DIM, 0.06)
        yield weight(f"blk.{i}.attn_output", N_EMBD, 0.09)
        yield norm(f"blk.{i}.ffn_norm.weight")
        yield weight(f"blk.{i}.ffn_gate", N_EMBD, 0.09)
        yield weight(f"blk.{i}.ffn_up", N_EMBD, 0.09)
        yield weight(f"blk.{i}.ffn_down", N_EMBD, 0.06)
    yield norm("output_norm.weight", 3)


def write_model(path):
    tokens, types, merges = vocabulary()
    writer = GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_description(f"random weights, made by {PROGRAM}")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_feed_forward_length(N_EMBD)
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
    for name, values, kind in tensors(len(tokens)):
        writer.add_tensor(name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class WidenedFile(llama_reference.GgufFile):
    """The file as temper --widen reads it."""

    def tensor(self, name):
        values = super().tensor(name)
        if self.tensors[name].tensor_type in KINDS:
            values = values.astype(np.float16).astype(np.float64)
        return values


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    index = fixture.header(PROGRAM, AGAIN, ["gguf", "numpy"])
    index["blocks"] = write_blocks(args.out)
    fixture.write_json(args.out / "widen.json", index)
    path = args.out / "llama.gguf"
    write_model(path)
    print(f"{path.stat().st_size:8d} {path}")
    fixture.write_json(args.out / "llama.json", reference(path, PROGRAM, AGAIN, WidenedFile))


if __name__ == "__main__":
    main()
