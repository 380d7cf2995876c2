#!/usr/bin/env python3
"""Tiny models of every architecture as Hugging Face directories, with the logits that transformers
gives for them.

    python3 tools/golden/make_arch_models.py tests/golden          all of them
    python3 tools/golden/make_arch_models.py tests/golden gpt2     some

writes tests/golden/hf/NAME/ (config.json, tokenizer.json, tokenizer_config.json, safetensors; what
each is for stands in arch_specs.py and hf_tokenizers.py), tests/golden/arch/NAME.json (the answers)
and tests/golden/hf/tokenizer-FAMILY.json (strings and their ids).

A model's weights are those of the first seed whose greedy answers leave an engine in float32 no
choice: no two best logits closer than 2e-3 of the range; no end token and no padding id, and at
least five different tokens in each.

The directory is loaded as a user would (from_pretrained, eager attention, CPU). The logits are then
computed in double precision throughout: transformers casts norms, rope and softmax to float32 even
in a double model, so those names are pointed at float64 while it runs. How far its own float32 is
off stands in each file.

Needs torch 2.11.0, transformers 5.17.0, tokenizers 0.23.2, numpy, regex and gguf 0.19.0. A minute
on 16 cores.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import shutil
import tempfile

import numpy as np
import tokenizers
import torch
import transformers

import fixture
import hf_tokenizers
from arch_specs import MODELS, tensors
from make_tiny_models import TEXT

PROGRAM = "tools/golden/make_arch_models.py"
AGAIN = f"python3 {PROGRAM} tests/golden"
PACKAGES = ["torch", "transformers", "tokenizers", "numpy"]

GREEDY_TOKENS = 16
PROMPTS = (1, 20, 60)
CLOSEST = 2e-3  # of the range: no two best logits of a greedy answer are closer


# ---- the directories -----------------------------------------------------------------------------


def encode(values, dtype):
    """float32 as the little-endian bytes of a safetensors dtype, and what those bytes mean."""
    if dtype == "F32":
        return values.astype("<f4").tobytes()
    if dtype == "F16":
        return values.astype("<f2").tobytes()
    assert dtype == "BF16"
    bits = values.view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(path, entries):
    """entries: (name, dtype, shape, bytes). The header is padded with spaces to 8 bytes."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in entries:
        header[name] = dict(
            dtype=dtype, shape=list(shape), data_offsets=[offset, offset + len(data)]
        )
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for *_, data in entries:
            file.write(data)


def write_weights(folder, spec, config, seed):
    dtype, shards = spec.get("dtype", "F32"), spec.get("shards", 1)
    entries = [
        (name, dtype, values.shape, encode(values, dtype)) for name, values in tensors(config, seed)
    ]
    if shards == 1:
        write_safetensors(folder / "model.safetensors", entries)
        return
    weight_map, cut = {}, (len(entries) + shards - 1) // shards
    for i in range(shards):
        part = entries[i * cut : (i + 1) * cut]
        name = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        write_safetensors(folder / name, part)
        weight_map |= {entry[0]: name for entry in part}
    total = sum(len(entry[3]) for entry in entries)
    index = dict(metadata=dict(total_size=total), weight_map=dict(sorted(weight_map.items())))
    write_value(folder / "model.safetensors.index.json", index)


def write_value(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def full_config(spec, made):
    config = dict(spec["config"])
    config.setdefault("vocab_size", hf_tokenizers.n_tokens(made))
    ids = made["model"]["vocab"] | {token["content"]: token["id"] for token in made["added_tokens"]}
    settings = hf_tokenizers.build(spec["tokenizer"])[1]
    for name in ("bos_token", "eos_token"):
        if settings[name] is not None:
            config.setdefault(f"{name}_id", ids[settings[name]])
    config["transformers_version"] = "4.51.3" if "rope_parameters" not in config else "5.17.0"
    return config


def write_directory(folder, name, spec, seed):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made, settings = hf_tokenizers.build(spec["tokenizer"])
    config = full_config(spec, made)
    write_value(folder / "config.json", config)
    if "generation" in spec:
        write_value(folder / "generation_config.json", spec["generation"])
    if name == "qwen3":  # the newer place of a template
        (folder / "chat_template.jinja").write_text(settings.pop("chat_template"), encoding="utf-8")
    write_value(folder / "tokenizer_config.json", settings)
    (folder / "tokenizer.json").write_text(hf_tokenizers.text_of(made), encoding="utf-8")
    write_weights(folder, spec, config, seed)
    return config


# ---- transformers in double ----------------------------------------------------------------------


@contextlib.contextmanager
def widened():
    """While this lasts, what asks torch for float32 gets float64."""
    names = ("float32", "float")
    kept = [getattr(torch, name) for name in names]
    kept_method = torch.Tensor.float
    torch.set_default_dtype(torch.float64)
    for name in names:
        setattr(torch, name, torch.float64)
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.Tensor.float = kept_method
        for name, value in zip(names, kept):
            setattr(torch, name, value)
        torch.set_default_dtype(torch.float32)


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    )
    return model.eval()


def widen(model):
    """Weights to double (exact), rope tables made anew from the configuration in double."""
    with widened():
        model = model.double()
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if type(child).__name__.endswith("RotaryEmbedding"):
                    setattr(module, name, type(child)(module.config))
                if hasattr(child, "embed_scale"):
                    child.embed_scale = torch.tensor(child.scalar_embed_scale)
    return model


def forward(model, ids, wide=True):
    """Logits of every position [T, V]; no cache."""
    with torch.no_grad(), widened() if wide else contextlib.nullcontext():
        out = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        assert out.dtype == (torch.float64 if wide else torch.float32)
        return out.numpy().astype(np.float64)


# ---- answers -------------------------------------------------------------------------------------


def prompt_of(tokenizer, count):
    """(text, ids): the first stretch of TEXT, by where it starts, whose tokens, BOS included if the
    tokenizer adds one, are just count."""
    for start in range(len(TEXT)):
        end = start
        while end <= len(TEXT):
            ids = tokenizer.encode(TEXT[start:end]).ids
            if len(ids) == count:
                return TEXT[start:end], ids
            if len(ids) > count:
                break
            end += 1 if count < 30 else max(1, (count - len(ids)) // 4)
    raise AssertionError(f"no prompt of {count} tokens")


def greedy(model, ids):
    """GREEDY_TOKENS tokens, each from a forward of everything before it."""
    out = dict(ids=[], gaps=[], logits=[], seconds=[])
    smallest = np.inf
    for _ in range(GREEDY_TOKENS):
        logits = forward(model, ids + out["ids"])[-1]
        order = np.argsort(-logits, kind="stable")
        best, second = int(order[0]), int(order[1])
        gap = logits[best] - logits[second]
        smallest = min(smallest, gap / (logits.max() - logits.min()))
        out["ids"].append(best)
        out["gaps"].append(single(gap))
        out["logits"].append(single(logits[best]))
        out["seconds"].append(second)
    return out, smallest


def single(value):
    """As a float32: nine significant digits at most."""
    if isinstance(value, np.ndarray):
        return [single(item) for item in value]
    return float(str(np.float32(value)))


def watched(count, window):
    places = {0, 1, count // 2, 255, 256, count - 1}
    places |= {window - 1, window} if window else set()
    return sorted(places & set(range(count)))


def ends(folder, config, made):
    """Ids that end a generation, and the first id that is no token."""
    generation = folder / "generation_config.json"
    found = [config["eos_token_id"]]
    if generation.exists():
        found.append(json.loads(generation.read_text())["eos_token_id"])
    flat = [n for item in found for n in (item if isinstance(item, list) else [item])]
    return sorted(set(flat)), hf_tokenizers.n_tokens(made)


def attempt(folder, name, spec, seed):
    """The answers with this seed's weights, or None where two logits are too close."""
    config = write_directory(folder, name, spec, seed)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    made = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    stops, n_tokens = ends(folder, config, made)
    model = load(folder)
    texts = [prompt_of(tokenizer, count) for count in spec.get("prompts", PROMPTS)]
    plain = [forward(model, ids, wide=False) for _, ids in texts]
    model = widen(model)
    out, off, longest = [], 0.0, None
    for (text, ids), other in zip(texts, plain):
        logits = forward(model, ids)
        answer, smallest = greedy(model, ids)
        given = set(answer["ids"])
        if smallest < CLOSEST or given & set(stops) or max(given) >= n_tokens or len(given) < 5:
            return None
        off, longest = max(off, np.abs(logits - other).max()), logits
        places = watched(len(ids), config.get("sliding_window"))
        out.append(
            dict(
                text=text,
                ids=ids,
                range=single(logits[-1].max() - logits[-1].min()),
                logits=[dict(position=place, values=single(logits[place])) for place in places],
                greedy=answer,
            )
        )
    moved = None
    if "without" in spec:
        with tempfile.TemporaryDirectory() as other:
            other = pathlib.Path(other) / "model"
            shutil.copytree(folder, other)
            write_value(other / "config.json", config | spec["without"])
            changed = forward(widen(load(other)), texts[-1][1])
        moved = float(np.abs(changed - longest).max())
        assert moved > 1e-2, f"{name}: {spec['without']} moves the logits by {moved} only"
    return config, stops, off, moved, out


def make(task):
    root, name = task
    spec, folder = MODELS[name], root / "hf" / name
    for seed in range(1, 200):
        answer = attempt(folder, name, spec, seed)
        if answer:
            break
    assert answer, f"{name}: no seed gives clear answers"
    config, stops, off, moved, prompts = answer
    out = fixture.header(PROGRAM, AGAIN, PACKAGES)
    out["model"] = dict(
        directory=f"../hf/{name}",
        gguf=f"{name}.gguf" if spec.get("gguf", True) else None,
        architecture=config["model_type"],
        tokenizer=f"../hf/tokenizer-{spec['tokenizer']}.json",
        dtype=spec.get("dtype", "F32"),
        seed=seed,
    )
    out["end_ids"] = stops
    out["float32_error"] = single(off)
    if moved is not None:
        out["without"] = dict(config=spec["without"], moves=single(moved))
    out["prompts"] = prompts
    path = root / "arch" / f"{name}.json"
    fixture.write_json(path, out)
    smallest = min(min(prompt["greedy"]["gaps"]) for prompt in prompts)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return (
        f"{name:18s} seed {seed:3d} {size:8d} bytes, range {prompts[-1]['range']:6.2f}, "
        f"smallest gap {smallest:.4f}, float32 off by {off:.1e}, without {moved and round(moved, 3)}, "
        f"{prompts[-1]['greedy']['ids'][:8]}"
    )


def tokenizer_cases(root, family):
    model = next(name for name, spec in MODELS.items() if spec["tokenizer"] == family)
    tokenizer = tokenizers.Tokenizer.from_file(str(root / "hf" / model / "tokenizer.json"))
    out = fixture.header(PROGRAM, AGAIN, ["tokenizers"])
    out["family"] = family
    out["models"] = [name for name, spec in MODELS.items() if spec["tokenizer"] == family]
    out["cases"] = []
    for text in hf_tokenizers.CASES:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        out["cases"].append(
            dict(
                text=text,
                ids=plain,
                whole=tokenizer.encode(text).ids,
                decoded=tokenizer.decode(plain, skip_special_tokens=False),
                skipped=tokenizer.decode(plain, skip_special_tokens=True),
            )
        )
    fixture.write_json(root / "hf" / f"tokenizer-{family}.json", out)


def start():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=list(MODELS), metavar="NAME")
    args = parser.parse_args()
    (args.out / "arch").mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool(min(os.cpu_count(), len(args.names)), start) as pool:
        for line in pool.imap(make, [(args.out, name) for name in args.names], chunksize=1):
            print(line, flush=True)
    for family in hf_tokenizers.FAMILIES:
        if {name for name in args.names if MODELS[name]["tokenizer"] == family}:
            tokenizer_cases(args.out, family)


if __name__ == "__main__":
    main()
