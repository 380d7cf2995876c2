"""The llama architecture in numpy, in double precision, straight from a GGUF file.

This is the yardstick that temper's f32 kernels are measured with, so it favours being plainly right
over being fast: every weight is dequantised by the gguf package to the f32 that the format defines,
widened to float64, and all arithmetic after that is float64. One token of the model, with h the
residual stream:

    h = E[id]
    for each layer:
        x = rmsnorm(h) * attn_norm
        q, k, v = Wq x, Wk x, Wv x                     Hq heads of D, Hkv heads of D, Hkv heads of D
        q, k = rope(q), rope(k)                        the cache takes k (rotated) and v
        h = h + Wo attention(q, cache)                 query head i reads KV head i / (Hq / Hkv)
        x = rmsnorm(h) * ffn_norm
        h = h + Wdown (silu(Wgate x) * Wup x)
    logits = Wout (rmsnorm(h) * output_norm)           no output.weight in the file: Wout is E

A GGUF llama file stores the rows of Wq and Wk so that rope turns ADJACENT pairs (2i, 2i+1) of a
head: the converter permuted them from Hugging Face's halves (i, i + D/2). Pair i at position p
turns by p * base^(-2i/D) / factor[i], where factor is rope_freqs.weight if the file has it (that is
how llama 3's long-context scaling arrives) and 1 if not.
"""

import hashlib

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class GgufFile:
    """Metadata and exactly dequantised tensors of one GGUF file."""

    def __init__(self, path):
        self.reader = GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def get(self, key, default=None):
        field = self.reader.get_field(key)
        return default if field is None else field.contents()

    def tensor(self, name):
        """The tensor as float64 [rows, columns] or [n]. The first GGUF dimension is the fastest: it
        is the column."""
        tensor = self.tensors[name]
        exact = dequantize(tensor.data, tensor.tensor_type)
        assert exact.dtype == np.float32
        return exact.reshape([int(n) for n in reversed(tensor.shape)]).astype(np.float64)


class Llama:
    """Weights and configuration. The cache is the caller's: new_cache() starts a timeline,
    forward() extends it."""

    def __init__(self, file):
        self.file = file
        assert file.get("general.architecture") == "llama"
        self.n_layer = file.get("llama.block_count")
        self.n_embd = file.get("llama.embedding_length")
        self.n_head = file.get("llama.attention.head_count")
        self.n_kv = file.get("llama.attention.head_count_kv", self.n_head)
        self.head_dim = file.get("llama.attention.key_length", self.n_embd // self.n_head)
        self.eps = file.get("llama.attention.layer_norm_rms_epsilon")
        base = file.get("llama.rope.freq_base", 10000.0)
        turning = file.get("llama.rope.dimension_count", self.head_dim)
        assert turning == self.head_dim, "partial rope is not part of this reference"
        assert self.n_head % self.n_kv == 0

        factors = file.tensor("rope_freqs.weight") if "rope_freqs.weight" in file.tensors else 1.0
        self.rope_rate = base ** (-np.arange(0, self.head_dim, 2) / self.head_dim) / factors

        self.embedding = file.tensor("token_embd.weight")
        tied = "output.weight" not in file.tensors
        self.head = self.embedding if tied else file.tensor("output.weight")
        self.output_norm = file.tensor("output_norm.weight")
        names = "attn_norm attn_q attn_k attn_v attn_output ffn_norm ffn_gate ffn_up ffn_down"
        self.layers = [
            {name: file.tensor(f"blk.{i}.{name}.weight") for name in names.split()}
            for i in range(self.n_layer)
        ]

    def new_cache(self):
        """Keys and values of each layer, [Hkv, tokens so far, D]."""
        empty = np.zeros((self.n_kv, 0, self.head_dim))
        return [(empty, empty) for _ in range(self.n_layer)]

    def rmsnorm(self, x, weight):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * weight

    def rope(self, x, start):
        """x [heads, T, D], its tokens at positions start, start+1, ...; adjacent pairs turn."""
        angle = np.arange(start, start + x.shape[1])[:, None] * self.rope_rate[None, :]
        cos, sin = np.cos(angle), np.sin(angle)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = np.empty_like(x)
        turned[..., 0::2] = even * cos - odd * sin
        turned[..., 1::2] = even * sin + odd * cos
        return turned

    def attention(self, q, k, v):
        """Causal: q [Hq, T, D] are the last T of the S tokens in k and v [Hkv, S, D].
        Returns [T, Hq * D]."""
        T, S = q.shape[1], k.shape[1]
        position = np.arange(S - T, S)
        hidden = np.arange(S)[None, :] > position[:, None]
        out = np.empty_like(q)
        for head in range(self.n_head):
            kv = head // (self.n_head // self.n_kv)
            score = q[head] @ k[kv].T / np.sqrt(self.head_dim)
            score[hidden] = -np.inf
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out[head] = weight @ v[kv] / weight.sum(axis=1, keepdims=True)
        return out.transpose(1, 0, 2).reshape(T, -1)

    def forward(self, ids, cache, positions=None, trace=None):
        """Appends ids to the cache; returns logits [len(positions), V] at the given rows of ids
        (default: the last).

        trace, a list, collects the last token's residual stream after the embedding and after each
        layer.
        """
        start = cache[0][0].shape[1]
        T = len(ids)

        def heads(x, n):
            return x.reshape(T, n, self.head_dim).transpose(1, 0, 2)

        h = self.embedding[np.asarray(ids)]
        if trace is not None:
            trace.append(h[-1].copy())
        for i, w in enumerate(self.layers):
            x = self.rmsnorm(h, w["attn_norm"])
            q = self.rope(heads(x @ w["attn_q"].T, self.n_head), start)
            k = self.rope(heads(x @ w["attn_k"].T, self.n_kv), start)
            v = heads(x @ w["attn_v"].T, self.n_kv)
            k = np.concatenate([cache[i][0], k], axis=1)
            v = np.concatenate([cache[i][1], v], axis=1)
            cache[i] = (k, v)
            h = h + self.attention(q, k, v) @ w["attn_output"].T

            x = self.rmsnorm(h, w["ffn_norm"])
            gate, up = x @ w["ffn_gate"].T, x @ w["ffn_up"].T
            h = h + (gate / (1 + np.exp(-gate)) * up) @ w["ffn_down"].T
            if trace is not None:
                trace.append(h[-1].copy())

        rows = h[[T - 1] if positions is None else list(positions)]
        return self.rmsnorm(rows, self.output_norm) @ self.head.T


def best_two(logits):
    """(id, logit, gap, id of the second). Equal logits go to the smaller id, as temper's argmax
    does."""
    first = int(np.argmax(logits))
    rest = logits.copy()
    rest[first] = -np.inf
    second = int(np.argmax(rest))
    return first, logits[first], logits[first] - logits[second], second


def most_and_sample(logits, most, every):
    """The likeliest tokens, and each `every`-th logit: what a fixture keeps of a large vocabulary."""
    order = np.lexsort((np.arange(len(logits)), -logits))[:most]
    return {
        "min": rounded(logits.min()),
        "max": rounded(logits.max()),
        "range": rounded(logits.max() - logits.min()),
        "top_ids": [int(i) for i in order],
        "top_logits": rounded(logits[order]),
        "sample_every": every,
        "sample_logits": rounded(logits[::every]),
    }


def greedy(model, cache, logits, count):
    """count greedy tokens after the prompt that is in the cache and left these logits.

    gaps[i] is the distance of the best to the second logit: a test of a less exact engine may
    accept a first different token at step i only where gaps[i] is within that engine's stated
    error; after it nothing is comparable.
    """
    out = {"ids": [], "gaps": [], "logits": [], "seconds": []}
    for step in range(count):
        best, logit, gap, second = best_two(logits)
        out["ids"].append(best)
        out["logits"].append(rounded(logit))
        out["gaps"].append(rounded(gap))
        out["seconds"].append(second)
        if step + 1 < count:
            logits = model.forward([best], cache)[0]
    return out


def rounded(value, digits=5):
    """Floats for JSON: five digits after the point hide the last bits, in which BLAS libraries
    differ."""
    if isinstance(value, (list, np.ndarray)):
        return [rounded(item, digits) for item in value]
    return round(float(value), digits)
