"""The Gemma 3 architecture in numpy, in double precision, straight from a GGUF file: what
llama_reference.py is for llama, with the same interface. What differs, with h the residual stream:

    h = sqrt(width) E[id]
    for each layer:
        x = rmsnorm(h) * attn_norm
        q, k, v = Wq x, Wk x, Wv x
        q, k = rope(rmsnorm(q) * q_norm), rope(rmsnorm(k) * k_norm)     each head normed by itself
        h = h + rmsnorm(Wo attention(q, cache)) * post_attention_norm
        x = rmsnorm(h) * ffn_norm
        h = h + rmsnorm(Wdown (gelu(Wgate x) * Wup x)) * post_ffw_norm
    logits = E (rmsnorm(h) * output_norm)

Rope turns the halves (i, i + D/2) of a head. Every sixth layer sees all that came before and turns
with the file's base; the others see the last sliding_window positions, themselves included, and
turn with base 10000. Gelu is the tanh form. The norm weights of a GGUF file have their 1 added.
"""

import numpy as np

GLOBAL_EVERY = 6
LOCAL_BASE = 10000.0


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Gemma:
    """Weights and configuration. The cache is the caller's: new_cache() starts a timeline,
    forward() extends it."""

    def __init__(self, file):
        self.file = file
        assert file.get("general.architecture") == "gemma3"
        self.n_layer = file.get("gemma3.block_count")
        self.n_embd = file.get("gemma3.embedding_length")
        self.n_head = file.get("gemma3.attention.head_count")
        self.n_kv = file.get("gemma3.attention.head_count_kv")
        self.head_dim = file.get("gemma3.attention.key_length")
        self.eps = file.get("gemma3.attention.layer_norm_rms_epsilon")
        self.window = file.get("gemma3.attention.sliding_window")
        self.base = file.get("gemma3.rope.freq_base")
        assert "output.weight" not in file.tensors, "a head of its own is not part of this reference"
        assert file.get("gemma3.rope.scaling.type") is None

        self.embedding = file.tensor("token_embd.weight")
        self.output_norm = file.tensor("output_norm.weight")
        names = (
            "attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm attn_output "
            "post_attention_norm ffn_norm ffn_gate ffn_up ffn_down post_ffw_norm"
        )
        self.layers = [
            {name: file.tensor(f"blk.{i}.{name}.weight") for name in names.split()}
            for i in range(self.n_layer)
        ]

    def new_cache(self):
        """Keys and values of each layer, [Hkv, tokens so far, D]."""
        empty = np.zeros((self.n_kv, 0, self.head_dim))
        return [(empty, empty) for _ in range(self.n_layer)]

    def is_global(self, layer):
        return (layer + 1) % GLOBAL_EVERY == 0

    def rmsnorm(self, x, weight):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * weight

    def rope(self, x, start, base):
        """x [heads, T, D], its tokens at positions start, start+1, ...; halves turn."""
        rate = base ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        angle = np.arange(start, start + x.shape[1])[:, None] * rate[None, :]
        cos, sin = np.cos(angle), np.sin(angle)
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)

    def attention(self, q, k, v, window):
        """Causal: q [Hq, T, D] are the last T of the S tokens in k and v [Hkv, S, D], each sees the
        last `window` (None: all). Returns [T, Hq * D]."""
        T, S = q.shape[1], k.shape[1]
        distance = np.arange(S - T, S)[:, None] - np.arange(S)[None, :]
        hidden = (distance < 0) | (distance >= (window or S))
        out = np.empty_like(q)
        for head in range(self.n_head):
            kv = head // (self.n_head // self.n_kv)
            score = q[head] @ k[kv].T / np.sqrt(self.head_dim)
            score[hidden] = -np.inf
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out[head] = weight @ v[kv] / weight.sum(axis=1, keepdims=True)
        return out.transpose(1, 0, 2).reshape(T, -1)

    def forward(self, ids, cache, positions=None):
        """Appends ids to the cache; returns logits [len(positions), V] at the given rows of ids
        (default: the last)."""
        start = cache[0][0].shape[1]
        T = len(ids)

        def heads(x, n):
            return x.reshape(T, n, self.head_dim).transpose(1, 0, 2)

        h = self.embedding[np.asarray(ids)] * np.sqrt(self.n_embd)
        for i, w in enumerate(self.layers):
            base = self.base if self.is_global(i) else LOCAL_BASE
            window = None if self.is_global(i) else self.window
            x = self.rmsnorm(h, w["attn_norm"])
            q = self.rmsnorm(heads(x @ w["attn_q"].T, self.n_head), w["attn_q_norm"])
            k = self.rmsnorm(heads(x @ w["attn_k"].T, self.n_kv), w["attn_k_norm"])
            q, k = self.rope(q, start, base), self.rope(k, start, base)
            v = heads(x @ w["attn_v"].T, self.n_kv)
            k = np.concatenate([cache[i][0], k], axis=1)
            v = np.concatenate([cache[i][1], v], axis=1)
            cache[i] = (k, v)
            out = self.attention(q, k, v, window) @ w["attn_output"].T
            h = h + self.rmsnorm(out, w["post_attention_norm"])

            x = self.rmsnorm(h, w["ffn_norm"])
            out = (gelu(x @ w["ffn_gate"].T) * (x @ w["ffn_up"].T)) @ w["ffn_down"].T
            h = h + self.rmsnorm(out, w["post_ffw_norm"])

        rows = h[[T - 1] if positions is None else list(positions)]
        return self.rmsnorm(rows, self.output_norm) @ self.embedding.T
