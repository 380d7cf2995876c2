#!/usr/bin/env python3
"""A Hugging Face directory as the GGUF file that llama.cpp's own converter would make of it.

    python3 tools/golden/hf_to_gguf.py HF_DIR OUT.gguf [--type auto|f32|f16|bf16]
    python3 tools/golden/hf_to_gguf.py --all tests/golden       hf/NAME to arch/NAME.gguf, for all

Of the architectures of tests/golden/hf: llama, mistral, qwen2, qwen3, gemma3_text, phi3, gpt2.
Tensor names come from the gguf package's own table. What differs between the two worlds:

    llama      rows of Q and K (and of their biases) reordered head by head: Hugging Face turns the
               pairs (i, i + D/2), a llama GGUF the pairs (2i, 2i + 1). No other architecture here
               does that. rope_type llama3 becomes the tensor rope_freqs.weight, not metadata
    mistral    is llama; llama.cpp keeps no window for it. Here it is written all the same, as
               llama.attention.sliding_window, since without it the file is another model
    gemma3     every norm weight + 1; no lm_head; layer types not stored: five local, one global
    phi3       qkv and gate-up stay fused; long-rope factors become two tensors and the factor on
               cos and sin rope.scaling.attn_factor
    gpt2       Conv1D matrices transposed; the position embedding is always F32
    all        norms and biases F32 whatever the type; rows past the vocabulary keep names [PADn]

Vocabulary: byte-level BPE becomes tokenizer.ggml.model gpt2, BPE with byte fallback (SentencePiece)
llama, whose scores are minus the rank of the piece. llama.cpp's converter wants tokenizer.model for
the latter; with tokenizer.json alone it gives every piece the score -1000, which splits wrongly.

Needs gguf 0.19.0 and numpy.
"""

import argparse
import json
import math
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

import fixture
import hf_tokenizers
from llama_reference import sha256_of

PROGRAM = "tools/golden/hf_to_gguf.py"
FILE_TYPES = {
    Type.F32: gguf.LlamaFileType.ALL_F32,
    Type.F16: gguf.LlamaFileType.MOSTLY_F16,
    Type.BF16: gguf.LlamaFileType.MOSTLY_BF16,
}
ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3_text": "gemma3",
    "phi3": "phi3",
    "gpt2": "gpt2",
}


# ---- reading -------------------------------------------------------------------------------------


def read_safetensors(path):
    """{name: (dtype, float32 values)}: every dtype here is exact in float32."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw, dtype = body[begin:end], entry["dtype"]
        if dtype == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[dtype]).astype(np.float32)
        out[name] = dtype, values.reshape(entry["shape"])
    return out


def read_weights(folder):
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.exists():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    out = {}
    for name in names:
        out |= read_safetensors(folder / name)
    return out


def read_json(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def rope_of(config):
    """(of global layers, base of local layers or None), whichever spelling the file has."""
    rope = config.get("rope_parameters")
    if rope is None:
        rope = dict(config.get("rope_scaling") or {})
        rope.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    local = config.get("rope_local_base_freq")
    if "full_attention" in rope:
        local = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    rope = dict(rope)
    rope.setdefault("rope_type", rope.get("type"))
    rope.setdefault("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    return rope, local


# ---- metadata ------------------------------------------------------------------------------------


def add_shape(writer, kind, config):
    if kind == "gpt2":
        writer.add_block_count(config["n_layer"])
        writer.add_context_length(config["n_ctx"])
        writer.add_embedding_length(config["n_embd"])
        writer.add_feed_forward_length(4 * config["n_embd"])
        writer.add_head_count(config["n_head"])
        writer.add_layer_norm_eps(config["layer_norm_epsilon"])
        return
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    if kind in ("llama", "mistral"):
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(head_dim)
    if kind in ("mistral", "gemma3_text") and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if kind == "phi3":
        writer.add_sliding_window(config.get("sliding_window") or 0)


def add_rope(writer, kind, config):
    if kind == "gpt2":
        return
    rope, local = rope_of(config)
    writer.add_rope_freq_base(rope["rope_theta"])
    if local is not None:
        writer.add_rope_freq_base_swa(local)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if "attention_factor" in rope:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
        if "beta_fast" in rope:
            writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        if "beta_slow" in rope:
            writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if kind == "phi3":
        original = config["original_max_position_embeddings"]
        writer.add_rope_scaling_orig_ctx_len(original)
        turned = int(rope["partial_rotary_factor"] * config["hidden_size"])
        writer.add_rope_dimension_count(turned // config["num_attention_heads"])
        if "long_factor" in rope:
            scale = config["max_position_embeddings"] / original
            writer.add_rope_scaling_attn_factors(
                math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
            )


def extra_tensors(kind, config):
    """Rope factors that are tensors in GGUF."""
    if kind == "gpt2":
        return
    rope, _ = rope_of(config)
    if rope["rope_type"] == "llama3":
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        yield "rope_freqs.weight", llama3_factors(rope, dim)
    if "long_factor" in rope:
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)


def llama3_factors(rope, dim):
    """What each pair's frequency is divided by: 1 for short waves, factor for waves longer than the
    original context, a blend between. In float32, as the converter has it."""
    single = np.float32
    rate = single(1) / single(rope["rope_theta"]) ** (
        np.arange(0, dim, 2, dtype=single) / single(dim)
    )
    wave = single(2 * math.pi) / rate
    factor, original, low, high = (
        single(rope[name])
        for name in (
            "factor",
            "original_max_position_embeddings",
            "low_freq_factor",
            "high_freq_factor",
        )
    )
    smooth = (original / wave - low) / (high - low)
    blend = 1 / ((1 - smooth) / factor + smooth)
    out = np.where(wave > original / low, factor, blend)
    return np.where(wave < original / high, single(1), out).astype(single)


# ---- vocabulary ----------------------------------------------------------------------------------


def pre_of(made):
    """tokenizer.ggml.pre, by what the pre-tokeniser does."""
    step = made["pre_tokenizer"]
    steps = step.get("pretokenizers", [step])
    patterns = [item["pattern"]["Regex"] for item in steps if item["type"] == "Split"]
    known = {
        (hf_tokenizers.LLAMA3,): "llama-bpe",
        (hf_tokenizers.QWEN2,): "qwen2",
        (hf_tokenizers.GPT4O,): "gpt-4o",
    }
    if patterns:
        return known[tuple(patterns)]
    return "smollm" if steps[0]["type"] == "Digits" else "gpt-2"


def add_vocabulary(writer, kind, config, folder):
    made = read_json(folder / "tokenizer.json")
    model, spm = made["model"], made["model"]["byte_fallback"]
    size = config["vocab_size"]
    tokens = [f"[PAD{i}]" for i in range(size)]
    types, scores = [gguf.TokenType.UNUSED] * size, [-10000.0] * size
    rank = {}
    for merge in model["merges"]:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        rank.setdefault("".join(pair), len(rank))
    for token, i in sorted(model["vocab"].items(), key=lambda item: item[1]):
        tokens[i], types[i] = token, gguf.TokenType.NORMAL
        if not spm:
            continue
        if len(token) == 6 and token.startswith("<0x"):
            types[i], scores[i] = gguf.TokenType.BYTE, 0.0
        else:  # single characters come after every piece, in their order
            scores[i] = float(-rank.setdefault(token, len(rank)))
    for token in made["added_tokens"]:
        i = token["id"]
        tokens[i], scores[i] = token["content"], -1000.0
        looks_so = token["content"].startswith("<|") and token["content"].endswith("|>")
        types[i] = gguf.TokenType.CONTROL
        if not token["special"] and not looks_so and token["content"] != "<pad>":
            tokens[i] = token["content"].replace(hf_tokenizers.SPACE, " ")
            types[i] = gguf.TokenType.USER_DEFINED
    if spm and model["unk_token"] is not None:
        i = tokens.index(model["unk_token"])
        types[i], scores[i] = gguf.TokenType.UNKNOWN, 0.0
    writer.add_tokenizer_model("llama" if spm else "gpt2")
    writer.add_tokenizer_pre("default" if spm else pre_of(made))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if spm:
        writer.add_token_scores(scores)
        if kind == "gemma3_text":
            writer.add_add_space_prefix(False)
    settings = read_json(folder / "tokenizer_config.json")
    if not spm and kind in ("llama", "mistral") and settings.get("add_prefix_space") is not None:
        writer.add_add_space_prefix(settings["add_prefix_space"])
    special = gguf.SpecialVocab(folder, load_merges=not spm, n_vocab=size)
    special.add_to_gguf(writer, quiet=True)


# ---- tensors -------------------------------------------------------------------------------------


def reorder(values, n_head):
    """Rows of each head from (0, D/2, ...) halves to adjacent pairs."""
    rows = values.reshape(n_head, 2, values.shape[0] // n_head // 2, *values.shape[1:])
    return rows.swapaxes(1, 2).reshape(values.shape)


def changed(kind, config, name, values):
    if kind in ("llama", "mistral"):
        if name.endswith(("q_proj.weight", "q_proj.bias")):
            return reorder(values, config["num_attention_heads"])
        if name.endswith(("k_proj.weight", "k_proj.bias")):
            return reorder(values, config["num_key_value_heads"])
    if kind == "gemma3_text" and name.endswith("norm.weight"):
        return values + np.float32(1)
    if kind == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return values.T
    return values


def bf16(values):
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def stored(values, kind):
    if kind == Type.BF16:
        return bf16(values).view(np.uint8)
    return np.ascontiguousarray(values, np.float16 if kind == Type.F16 else np.float32)


def convert(folder, path, wanted="auto"):
    config, weights = read_json(folder / "config.json"), read_weights(folder)
    kind = config["model_type"]
    if kind == "gemma3_text" and config["query_pre_attn_scalar"] != config["head_dim"]:
        raise SystemExit(
            f"{folder}: query_pre_attn_scalar is not head_dim; GGUF has no key for that"
        )
    arch = ARCHITECTURES[kind]
    if wanted == "auto":
        wanted = next(iter(weights.values()))[0].lower()
    wide = Type[wanted.upper()]

    writer = gguf.GGUFWriter(path, arch)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(folder.name)
    writer.add_description(f"random weights; {PROGRAM} made this of hf/{folder.name}")
    add_shape(writer, kind, config)
    add_rope(writer, kind, config)
    writer.add_file_type(FILE_TYPES[wide])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_vocabulary(writer, kind, config, folder)

    n_layer = config.get("num_hidden_layers") or config["n_layer"]
    key = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    table = gguf.get_tensor_name_map(key, n_layer)
    for name, values in extra_tensors(kind, config):
        writer.add_tensor(name, values, raw_dtype=Type.F32)
    for name, (_, values) in weights.items():
        new = table.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new, f"{folder}: no GGUF name for {name}"
        values = changed(kind, config, name, values)
        plain = values.ndim == 1 or new.endswith("_norm.weight") or new == "position_embd.weight"
        form = Type.F32 if plain else wide
        writer.add_tensor(new, stored(values, form), raw_dtype=form)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert_all(root, wanted):
    again = f"python3 {PROGRAM} --all tests/golden"
    out = fixture.header(PROGRAM, again, ["gguf", "numpy"]) | {"files": []}
    for answers in sorted((root / "arch").glob("*.json")):
        model = read_json(answers).get("model", {})
        if not model.get("gguf"):
            continue
        path = root / "arch" / model["gguf"]
        convert(root / "hf" / answers.stem, path, wanted)
        print(f"{path.stat().st_size:8d} {path}")
        out["files"].append(dict(file=path.name, size=path.stat().st_size, sha256=sha256_of(path)))
    fixture.write_json(root / "arch" / "gguf.json", out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--type", default="auto", choices=["auto", "f32", "f16", "bf16"])
    args = parser.parse_args()
    if args.all:
        convert_all(args.source, args.type)
    else:
        convert(args.source, args.out, args.type)


if __name__ == "__main__":
    main()
