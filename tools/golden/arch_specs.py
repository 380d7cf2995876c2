"""The tiny models of tests/golden/hf: configurations in the words of published config.json files,
and the weights that belong to them.

Weights are random by make_tiny_models.py's Stream, the same on every machine. Their scales keep the
residual stream near 1, make attention choosy (scores of a few units) and spread the logits over
several units, and no norm weight is 1 and no bias 0, so that nothing in a graph may be left out.

A spec: tokenizer (of hf_tokenizers.py), config, prompts (lengths in tokens, BOS included), and

    dtype, shards    of the safetensors file or files; F32 and one file unless given
    without          configuration values that switch off what the model is there to test; the maker
                     measures how far that moves the logits, and refuses a model that does not care
    generation       generation_config.json, if there is one
    gguf             False: llama.cpp's conventions have no place for it; hf_to_gguf.py refuses it
"""

import math

import numpy as np

from make_tiny_models import Stream

LONG = 270  # more than one block of 256 cache positions


def llama_config(**changes):
    """Two layers, 4 query heads of 16 on 2 KV heads."""
    return (
        dict(
            architectures=["LlamaForCausalLM"],
            model_type="llama",
            hidden_size=64,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            hidden_act="silu",
            max_position_embeddings=2048,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=None,
            attention_bias=False,
            mlp_bias=False,
            tie_word_embeddings=False,
            torch_dtype="float32",
        )
        | changes
    )


def heads_of_64(**changes):
    """As Llama 3.2 1B: rope over 32 pairs of base 500000."""
    return llama_config(
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        intermediate_size=64,
        rope_theta=500000.0,
        max_position_embeddings=131072,
        tie_word_embeddings=True,
        **changes,
    )


def llama3_scaling(factor):
    return dict(
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
        rope_type="llama3",
    )


def qwen2_config(**changes):
    config = llama_config(architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=304)
    for name in ("attention_bias", "mlp_bias", "rope_scaling"):
        del config[name]
    return (
        config
        | dict(
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            sliding_window=2048,
            max_window_layers=2,
            use_sliding_window=False,
            bos_token_id=288,
            eos_token_id=290,
        )
        | changes
    )


def gemma3_config(**changes):
    """7 layers: five local, one global, one local."""
    return (
        dict(
            architectures=["Gemma3ForCausalLM"],
            model_type="gemma3_text",
            hidden_size=80,
            intermediate_size=72,
            num_hidden_layers=7,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=16,
            hidden_activation="gelu_pytorch_tanh",
            max_position_embeddings=2048,
            rms_norm_eps=1e-6,
            rope_theta=1000000,
            rope_local_base_freq=10000,
            rope_scaling=None,
            sliding_window=16,
            sliding_window_pattern=6,
            query_pre_attn_scalar=16,
            attention_bias=False,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            bos_token_id=2,
            eos_token_id=1,
            pad_token_id=0,
            torch_dtype="float32",
        )
        | changes
    )


def phi3_config(**changes):
    return (
        dict(
            architectures=["Phi3ForCausalLM"],
            model_type="phi3",
            vocab_size=304,
            hidden_size=64,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            hidden_act="silu",
            max_position_embeddings=2048,
            original_max_position_embeddings=2048,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=None,
            sliding_window=2047,
            attention_bias=False,
            tie_word_embeddings=False,
            bos_token_id=1,
            eos_token_id=295,
            pad_token_id=295,
            torch_dtype="float32",
        )
        | changes
    )


SHORT_FACTORS = [1.0, 1.0625, 1.125, 1.25, 1.375, 1.5, 1.75, 2.0]
LONG_FACTORS = [1.25, 1.5, 2.0, 3.0, 5.5, 9.0, 17.25, 30.0]

# Phi-3's 128k kind: contexts above 32 tokens take the long factors for every position.
LONGROPE = dict(type="longrope", short_factor=SHORT_FACTORS, long_factor=LONG_FACTORS)

GPT2 = dict(
    architectures=["GPT2LMHeadModel"],
    model_type="gpt2",
    vocab_size=289,
    n_embd=64,
    n_layer=2,
    n_head=4,
    n_ctx=1024,
    n_positions=1024,
    activation_function="gelu_new",
    layer_norm_epsilon=1e-5,
    bos_token_id=288,
    eos_token_id=288,
)

MODELS = {
    "llama": dict(
        tokenizer="llama-bpe", config=llama_config(eos_token_id=[289, 292]), prompts=(1, 20, LONG)
    ),
    "llama-tied-bf16": dict(
        tokenizer="smollm",
        dtype="BF16",
        config=llama_config(tie_word_embeddings=True, torch_dtype="bfloat16"),
    ),
    "llama-sharded-f16": dict(
        tokenizer="llama-bpe",
        dtype="F16",
        shards=2,
        config=llama_config(torch_dtype="float16"),
        generation=dict(bos_token_id=288, eos_token_id=[289, 292]),
    ),
    "llama-llama3-8": dict(
        tokenizer="llama-bpe",
        config=heads_of_64(rope_scaling=llama3_scaling(8.0)),
        prompts=(1, 20, LONG),
        without=dict(rope_scaling=None),
    ),
    "llama-llama3-32": dict(
        tokenizer="llama-bpe",
        config=heads_of_64(rope_scaling=llama3_scaling(32.0)),
        prompts=(1, 20, LONG),
        without=dict(rope_scaling=llama3_scaling(8.0)),
    ),
    "llama-linear": dict(
        tokenizer="llama-spm",
        config=llama_config(rope_scaling=dict(type="linear", factor=4.0), tie_word_embeddings=True),
        without=dict(rope_scaling=None),
    ),
    "llama-yarn": dict(
        tokenizer="llama-bpe",
        config=llama_config(
            tie_word_embeddings=True,
            rope_scaling=dict(
                rope_type="yarn",
                factor=16.0,
                original_max_position_embeddings=128,
            ),
        ),
        prompts=(1, 20, LONG),
        without=dict(rope_scaling=None),
    ),
    "llama-headdim": dict(
        tokenizer="llama-spm",
        config=llama_config(
            num_key_value_heads=1, head_dim=32, intermediate_size=64, tie_word_embeddings=True
        ),
    ),
    "llama-bias": dict(
        tokenizer="llama-spm", config=llama_config(attention_bias=True, tie_word_embeddings=True)
    ),
    "mistral": dict(
        tokenizer="mistral",
        config=llama_config(
            architectures=["MistralForCausalLM"],
            model_type="mistral",
            sliding_window=None,
            head_dim=16,
            rope_theta=1000000.0,
            num_key_value_heads=4,
            tie_word_embeddings=True,
        ),
    ),
    "mistral-window": dict(
        tokenizer="mistral",
        config=llama_config(
            architectures=["MistralForCausalLM"],
            model_type="mistral",
            sliding_window=24,
            tie_word_embeddings=True,
        ),
        prompts=(1, 20, 100),
        without=dict(sliding_window=None),
    ),
    "qwen2": dict(
        tokenizer="qwen2",
        config=qwen2_config(),
        prompts=(1, 20, LONG),
        generation=dict(bos_token_id=288, eos_token_id=[290, 288], pad_token_id=288),
    ),
    "qwen2-tied": dict(
        tokenizer="qwen2", config=qwen2_config(tie_word_embeddings=True, num_key_value_heads=1)
    ),
    "qwen3": dict(
        tokenizer="qwen2",
        config=qwen2_config(
            architectures=["Qwen3ForCausalLM"],
            model_type="qwen3",
            head_dim=32,
            attention_bias=False,
            intermediate_size=64,
            tie_word_embeddings=True,
        ),
        prompts=(1, 20, LONG),
    ),
    "gemma3": dict(
        tokenizer="gemma",
        config=gemma3_config(),
        prompts=(1, 20, 100),
        without=dict(sliding_window=2048),
        generation=dict(bos_token_id=2, eos_token_id=[1, 5], pad_token_id=0),
    ),
    # As Gemma 3 4B and larger, in the spelling of transformers 5: rope by kind of layer.
    "gemma3-linear": dict(
        tokenizer="gemma",
        dtype="BF16",
        config={
            name: value
            for name, value in gemma3_config(
                num_hidden_layers=6,
                hidden_size=64,
                num_key_value_heads=2,
                intermediate_size=64,
                dtype="bfloat16",
                layer_types=["sliding_attention"] * 5 + ["full_attention"],
                rope_parameters=dict(
                    full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
                    sliding_attention=dict(rope_type="default", rope_theta=10000.0),
                ),
            ).items()
            if name
            not in (
                "torch_dtype",
                "rope_theta",
                "rope_local_base_freq",
                "rope_scaling",
                "sliding_window_pattern",
            )
        },
        prompts=(1, 20, 100),
        without=dict(
            rope_parameters=dict(
                full_attention=dict(rope_type="default", rope_theta=1000000.0),
                sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            )
        ),
    ),
    # As Gemma 3 27B: scores scaled by hidden_size / heads instead of head_dim. A GGUF file says so
    # by nothing but its 62 layers.
    "gemma3-scalar": dict(
        tokenizer="gemma",
        gguf=False,
        dtype="BF16",
        config=gemma3_config(
            num_hidden_layers=6,
            hidden_size=64,
            intermediate_size=64,
            head_dim=32,
            num_attention_heads=2,
            query_pre_attn_scalar=8,
            torch_dtype="bfloat16",
        ),
        without=dict(query_pre_attn_scalar=32),
    ),
    "phi3": dict(
        tokenizer="phi3",
        config=phi3_config(),
        prompts=(1, 20, LONG),
        generation=dict(bos_token_id=1, eos_token_id=[295, 297], pad_token_id=295),
    ),
    # 17 + 15 tokens stay within the short factors.
    "phi3-longrope": dict(
        tokenizer="phi3",
        config=phi3_config(
            original_max_position_embeddings=32,
            rope_scaling=LONGROPE,
            sliding_window=262144,
            tie_word_embeddings=True,
        ),
        prompts=(1, 17, 60),
        without=dict(rope_scaling=LONGROPE | dict(long_factor=SHORT_FACTORS)),
    ),
    # As Phi-4-mini: rope turns the first 3/4 of a head only, a byte-level vocabulary, a tied head.
    "phi4": dict(
        tokenizer="gpt-4o",
        config=phi3_config(
            partial_rotary_factor=0.75,
            tie_word_embeddings=True,
            bos_token_id=288,
            eos_token_id=288,
            pad_token_id=288,
            vocab_size=293,
        ),
        without=dict(partial_rotary_factor=1.0),
    ),
    "gpt2": dict(tokenizer="gpt2", config=GPT2, prompts=(1, 20, LONG)),
}


def shapes(config):
    """(name, shape, mean, standard deviation) of every tensor, in the order of the file."""
    if config["model_type"] == "gpt2":
        yield from gpt2_shapes(config)
        return
    n_embd, n_ff = config["hidden_size"], config["intermediate_size"]
    n_head, n_kv = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or n_embd // n_head
    kind = config["model_type"]
    shift = 0.0 if kind == "gemma3_text" else 1.0  # Gemma stores the distance to 1
    bias = config.get("attention_bias") or kind == "qwen2"

    def norm(name, size=n_embd, mean=1.0):
        return name, (size,), mean - 1.0 + shift, 0.25

    def linear(name, rows, columns, gain, with_bias=False):
        yield f"{name}.weight", (rows, columns), 0.0, gain / math.sqrt(columns)
        if with_bias:
            yield f"{name}.bias", (rows,), 0.0, 0.5

    # Gemma multiplies the embedding by sqrt(n_embd): smaller, so that the layers still matter.
    spread = 0.06 if kind == "gemma3_text" else 0.3
    yield "model.embed_tokens.weight", (config["vocab_size"], n_embd), 0.0, spread
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        yield norm(f"{layer}.input_layernorm.weight")
        if kind == "phi3":
            yield from linear(
                f"{layer}.self_attn.qkv_proj", (n_head + 2 * n_kv) * head_dim, n_embd, 1.4
            )
        else:
            yield from linear(f"{layer}.self_attn.q_proj", n_head * head_dim, n_embd, 1.5, bias)
            yield from linear(f"{layer}.self_attn.k_proj", n_kv * head_dim, n_embd, 1.5, bias)
            yield from linear(f"{layer}.self_attn.v_proj", n_kv * head_dim, n_embd, 1.0, bias)
        if kind in ("qwen3", "gemma3_text"):
            yield norm(f"{layer}.self_attn.q_norm.weight", head_dim, 1.5)
            yield norm(f"{layer}.self_attn.k_norm.weight", head_dim, 1.5)
        out_bias = bool(config.get("attention_bias"))
        yield from linear(f"{layer}.self_attn.o_proj", n_embd, n_head * head_dim, 1.5, out_bias)
        yield norm(f"{layer}.post_attention_layernorm.weight")
        if kind == "gemma3_text":
            yield norm(f"{layer}.pre_feedforward_layernorm.weight")
        if kind == "phi3":
            yield from linear(f"{layer}.mlp.gate_up_proj", 2 * n_ff, n_embd, 1.5)
        else:
            yield from linear(f"{layer}.mlp.gate_proj", n_ff, n_embd, 1.5)
            yield from linear(f"{layer}.mlp.up_proj", n_ff, n_embd, 1.5)
        yield from linear(f"{layer}.mlp.down_proj", n_embd, n_ff, 1.0)
        if kind == "gemma3_text":
            yield norm(f"{layer}.post_feedforward_layernorm.weight")
    yield norm("model.norm.weight", mean=5.0 if kind == "gemma3_text" else 1.0)
    if not config.get("tie_word_embeddings", kind == "gemma3_text"):
        yield "lm_head.weight", (config["vocab_size"], n_embd), 0.0, 0.3


def gpt2_shapes(config):
    """The names of the first published files: no "transformer." before them. Matrices are Conv1D's:
    [inputs, outputs]."""
    n_embd = config["n_embd"]

    def norm(name):
        yield f"{name}.weight", (n_embd,), 1.0, 0.25
        yield f"{name}.bias", (n_embd,), 0.0, 0.15

    def conv(name, inputs, outputs, gain):
        yield f"{name}.weight", (inputs, outputs), 0.0, gain / math.sqrt(inputs)
        yield f"{name}.bias", (outputs,), 0.0, 0.15

    yield "wte.weight", (config["vocab_size"], n_embd), 0.0, 0.3
    yield "wpe.weight", (config["n_positions"], n_embd), 0.0, 0.6
    for i in range(config["n_layer"]):
        yield from norm(f"h.{i}.ln_1")
        yield from conv(f"h.{i}.attn.c_attn", n_embd, 3 * n_embd, 1.3)
        yield from conv(f"h.{i}.attn.c_proj", n_embd, n_embd, 1.5)
        yield from norm(f"h.{i}.ln_2")
        yield from conv(f"h.{i}.mlp.c_fc", n_embd, 4 * n_embd, 1.5)
        yield from conv(f"h.{i}.mlp.c_proj", 4 * n_embd, n_embd, 1.0)
    yield from norm("ln_f")


def tensors(config, seed):
    """(name, float32 values) of the model."""
    stream = Stream(seed)
    for name, shape, mean, deviation in shapes(config):
        yield name, np.float32(mean) + stream.normal(shape, deviation)
