"""Byte-level BPE as GGUF files describe it (tokenizer.ggml.model = gpt2), small and independent of
temper.

Four steps: cut out special tokens (if they are to be parsed), cut the rest into words by the
pattern that tokenizer.ggml.pre names, spell each word's UTF-8 bytes in GPT-2's printable alphabet,
merge pairs by rank. A byte that the vocabulary has no token for (smollm lacks 21 of the 256)
vanishes, as in llama.cpp and in Hugging Face's library.
"""

import regex

CONTROL = 3  # tokenizer.ggml.token_type of <|im_start|> and its like

# Space is spelled as the Unicode property: Python's own \s counts U+001C..U+001F too, the other
# engines don't.
GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+"
    r"|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+"
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+"
    r"|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+"
)

# Each pattern splits every piece the one before it left; what a pattern does not match stays a
# piece.
PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [LLAMA3.replace("{1,3}", "")],
}


def byte_alphabet():
    """GPT-2's one printable character for each byte: itself where it prints, else the next one from
    U+0100 on."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table, spare = {}, 0x100
    for byte in range(256):
        if byte in keep:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(spare)
            spare += 1
    return table


def split_words(patterns, text):
    pieces = [text]
    for pattern in patterns:
        compiled, cut = regex.compile(pattern), []
        for piece in pieces:
            end = 0
            for match in compiled.finditer(piece):
                cut += [piece[end : match.start()], match.group()]
                end = match.end()
            cut.append(piece[end:])
        pieces = [piece for piece in cut if piece]
    return pieces


class Bpe:
    def __init__(self, tokens, types, merges, pre):
        self.tokens, self.merges, self.patterns = tokens, merges, PATTERNS[pre]
        self.ids = {token: i for i, token in enumerate(tokens)}
        self.rank = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self.special = {token for token, kind in zip(tokens, types) if kind == CONTROL}
        self.whole_words = pre == "llama-bpe"  # a word that is a token is not merged up to
        self.alphabet = byte_alphabet()
        self.bytes_of = {char: byte for byte, char in self.alphabet.items()}
        self.cache = {}

    @classmethod
    def from_gguf(cls, file):
        assert file.get("tokenizer.ggml.model") == "gpt2"
        return cls(
            file.get("tokenizer.ggml.tokens"),
            file.get("tokenizer.ggml.token_type"),
            file.get("tokenizer.ggml.merges"),
            file.get("tokenizer.ggml.pre"),
        )

    def encode(self, text, special=True):
        """Token ids; special tokens spelled out in the text become their ids if special, else plain
        text."""
        if special and self.special:
            longest_first = sorted(self.special, key=len, reverse=True)
            parts = regex.split("(" + "|".join(map(regex.escape, longest_first)) + ")", text)
        else:
            parts = [text]
        ids = []
        for part in parts:
            if special and part in self.special:
                ids.append(self.ids[part])
            else:
                for word in split_words(self.patterns, part):
                    ids += self.encode_word(word)
        return ids

    def encode_word(self, word):
        if word not in self.cache:
            symbols = [self.alphabet[byte] for byte in word.encode("utf-8")]
            if self.whole_words and "".join(symbols) in self.ids:
                symbols = ["".join(symbols)]
            # Lowest rank first, leftmost first among equals.
            while len(symbols) > 1:
                ranked = [
                    (self.rank.get(pair, len(self.rank)), i)
                    for i, pair in enumerate(zip(symbols, symbols[1:]))
                ]
                rank, i = min(ranked)
                if rank == len(self.rank):
                    break
                symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
            self.cache[word] = [self.ids[symbol] for symbol in symbols if symbol in self.ids]
        return self.cache[word]

    def bytes(self, ids):
        out = bytearray()
        for token in (self.tokens[i] for i in ids):
            spelled_out = token in self.special
            out += token.encode() if spelled_out else bytes(self.bytes_of[char] for char in token)
        return bytes(out)

    def decode(self, ids):
        """An incomplete character, at the end for instance, becomes one U+FFFD."""
        return self.bytes(ids).decode("utf-8", "replace")

    def hugging_face(self, special=True):
        """The same vocabulary in Hugging Face's tokenizers library, for cross-checks; gpt-2 and
        smollm only."""
        from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

        assert self.patterns in (PATTERNS["gpt-2"], PATTERNS["smollm"])
        pairs = [tuple(merge.split(" ")) for merge in self.merges]
        tokenizer = Tokenizer(models.BPE(vocab=self.ids, merges=pairs))
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        if self.patterns == PATTERNS["smollm"]:
            byte_level = pre_tokenizers.Sequence(
                [pre_tokenizers.Digits(individual_digits=True), byte_level]
            )
        tokenizer.pre_tokenizer = byte_level
        if special:
            tokenizer.add_special_tokens(
                [AddedToken(token, normalized=False) for token in sorted(self.special)]
            )
        return tokenizer
