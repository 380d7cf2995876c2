"""tokenizer.json and tokenizer_config.json as published models have them, each with a vocabulary
of about 300 tokens: the normalisers, pre-tokenisers, post-processors and added-token rules are those of
the family, only the pieces are few.

    smollm      digits one by one, then GPT-2's words; special tokens first; adds nothing
    llama-bpe   llama 3's pattern, whole words before merges, special tokens last; adds BOS
    qwen2       NFC, qwen2's pattern, merges as pairs, no BOS
    gpt2        GPT-2's words by the ByteLevel step itself
    gpt-4o      o200k's pattern (Phi-4-mini)
    llama-spm   llama 2: a "▁" before the text and for each space, bytes for unknown characters; BOS
    mistral     the same by a Metaspace step before the first word only, special tokens [INST] ...
    gemma       no space before the text, "\\n\\n" and "\\t" as tokens that are not special; BOS
    phi3        llama 2's with added tokens that swallow the white space to their right

Trained on the text of make_tiny_models.py.
"""

import json

from bpe import PATTERNS, byte_alphabet, split_words
from make_tiny_models import TEXT

QUOTED = "'s|'t|'re|'ve|'m|'ll|'d"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (
    rf"(?i:{QUOTED})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{TAIL}"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:{QUOTED})?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:{QUOTED})?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"
)

# Strings that take families apart; each with the ids that Hugging Face's tokenizers gives.
CASES = [
    "",
    " ",
    "Hello world",
    " Hello  world   !",
    "Hello world! Café déjà vu — 123 😊",
    "Cafe\u0301 de\u0301ja\u0300, \u212b, \ufb01",
    "I'm sure they'll say it's WE'RE not he'd've",
    "0 12 345 6789 1234567890 ²½ ٣٤",
    "camelCase HTTPServer XMLHttpRequest2 snake_case",
    "a\nb\r\nc\n\nd\n\n\ne \n f\t\tg",
    "\n",
    "   leading, trailing   ",
    "\u00a0nbsp\u3000wide\u2003em",
    "数字と漢字、ひらがな。한국어 텍스트",
    "Привет, мир! Ωμέγα العربية עברית",
    "👩‍👩‍👧‍👦 🇩🇪 ☃️ \U0001f9d1\U0001f3fd\u200d\U0001f4bb",
    "for (i = 0; i < n; i++) { sum += x[i] * w[i]; } // a/b/c",
    "www.example.org/path?x=1&y=%20#top",
    "\x00\x01\x7f control \u200b\ufeff",
    "▁already▁spelled <0x41> <s> </s> <unk>",
    "the end of the text and the test",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "<|user|>  Hi <|end|>\n<|assistant|> \n",
    "<start_of_turn>user\nHi<end_of_turn>\n\n<start_of_turn>model\n",
    "<bos>x<eos> [INST] y [/INST] <|begin_of_text|>z<|endoftext|> <|eot_id|>",
    "x" * 40 + " " * 20 + "." * 20,
]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{{ message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA3_CHAT = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + "
    "'<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)
INST_CHAT = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}"
    "{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
GEMMA_CHAT = (
    "{{ bos_token }}{% for message in messages %}{% set role = 'model' if message['role'] == "
    "'assistant' else message['role'] %}{{ '<start_of_turn>' + role + '\n' + message['content'] | "
    "trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
PHI3_CHAT = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + "
    "'<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)

SPACE = "▁"


def commonest_pair(words):
    tally = {}
    for word in words:
        for pair in zip(word, word[1:]):
            if None not in pair:
                tally[pair] = tally.get(pair, 0) + 1
    return min(tally, key=lambda pair: (-tally[pair], pair))


def train(words, count):
    """The commonest pair of symbols, again and again; ties go to the pair that sorts first. None in
    a word is a wall."""
    merges = []
    for _ in range(count):
        best = commonest_pair(words)
        merges.append(best)
        for word in words:
            i = 0
            while i + 1 < len(word):
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [word[i] + word[i + 1]]
                i += 1
    return merges


def byte_words():
    alphabet = byte_alphabet()
    return [
        [alphabet[byte] for byte in word.encode()] for word in split_words(PATTERNS["smollm"], TEXT)
    ]


def added(number, content, special=True, **flags):
    rules = dict(single_word=False, lstrip=False, rstrip=False, normalized=False)
    return dict(id=number, content=content, **(rules | flags), special=special)


def begin_with(token, number):
    """The post-processor that puts BOS first."""
    special = {"SpecialToken": {"id": token, "type_id": 0}}
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, {"SpecialToken": {"id": token, "type_id": 1}}, second],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


def byte_level(use_regex, add_prefix_space=False):
    return dict(
        type="ByteLevel", add_prefix_space=add_prefix_space, trim_offsets=True, use_regex=use_regex
    )


def split_by(pattern):
    split = dict(type="Split", pattern={"Regex": pattern}, behavior="Isolated", invert=False)
    return dict(type="Sequence", pretokenizers=[split, byte_level(False)])


def file_of(model, added_tokens, **parts):
    out = dict(version="1.0", truncation=None, padding=None, added_tokens=added_tokens)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        out[part] = parts.get(part)
    return out | {"model": model}


def byte_bpe(specials, last, pairs=False, n_merges=32, ignore_merges=False, **parts):
    """last: special tokens after the vocabulary and outside of it, as llama 3 and Qwen have them;
    else its first. pairs: merges as lists of two, the newer spelling."""
    merges = train(byte_words(), n_merges)
    words = list(byte_alphabet().values()) + [left + right for left, right in merges]
    tokens = words if last else specials + words
    first = len(words) if last else 0
    model = dict(
        type="BPE",
        dropout=None,
        unk_token=None,
        continuing_subword_prefix=None,
        end_of_word_suffix=None,
        fuse_unk=False,
        byte_fallback=False,
        ignore_merges=ignore_merges,
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[list(pair) if pairs else " ".join(pair) for pair in merges],
    )
    added_tokens = [added(first + i, token) for i, token in enumerate(specials)]
    return file_of(model, added_tokens, decoder=byte_level(True, True), **parts)


def spm_bpe(before, added_tokens, bytes_last=False, n_chars=16, n_merges=20, **parts):
    """A SentencePiece vocabulary of the BPE kind as Hugging Face's converter spells it: the pieces
    in the order of their scores, then single characters; every pair that joins to a piece is a
    merge, in that order. before: what comes first."""
    spelled = [SPACE + word for word in TEXT.replace("\n", " ").split(" ") if word]
    tally = {}
    for char in "".join(spelled):
        tally[char] = tally.get(char, 0) + 1
    chars = sorted(tally, key=lambda char: (-tally[char], char))[:n_chars]
    words = [[char if char in chars else None for char in word] for word in spelled]
    pieces = ["".join(pair) for pair in train(words, n_merges)] + chars
    spelled_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = before + (pieces + spelled_bytes if bytes_last else spelled_bytes + pieces)
    vocab = {token: i for i, token in enumerate(tokens)}
    assert len(vocab) == len(tokens)
    merges = []
    for piece in pieces:
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        cuts = [cut for cut in cuts if cut[0] in pieces and cut[1] in pieces]
        merges += sorted(cuts, key=lambda cut: (vocab[cut[0]], vocab[cut[1]]))
    model = dict(
        type="BPE",
        dropout=None,
        unk_token="<unk>",
        continuing_subword_prefix=None,
        end_of_word_suffix=None,
        fuse_unk=True,
        byte_fallback=True,
        ignore_merges=False,
        vocab=vocab,
        merges=[" ".join(pair) for pair in merges],
    )
    first = len(tokens)
    numbered = [
        token | {"id": vocab.get(token["content"], first + token["id"])} for token in added_tokens
    ]
    return file_of(model, numbered, **parts)


REPLACE = dict(type="Replace", pattern={"String": " "}, content=SPACE)
DECODE = [
    dict(type="Replace", pattern={"String": SPACE}, content=" "),
    dict(type="ByteFallback"),
    dict(type="Fuse"),
]
STRIP = dict(type="Strip", content=" ", start=1, stop=0)
LLAMA2 = dict(
    normalizer=dict(type="Sequence", normalizers=[dict(type="Prepend", prepend=SPACE), REPLACE]),
    post_processor=begin_with("<s>", 1),
    decoder=dict(type="Sequence", decoders=[*DECODE, STRIP]),
)
UNK_BOS_EOS = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")]


def smollm():
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    digits = dict(type="Digits", individual_digits=True)
    pre = dict(type="Sequence", pretokenizers=[digits, byte_level(True)])
    config = dict(
        tokenizer_class="GPT2Tokenizer",
        add_prefix_space=False,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        unk_token="<|endoftext|>",
        pad_token="<|im_end|>",
        chat_template=CHATML,
    )
    return byte_bpe(names, last=False, pre_tokenizer=pre), config


def llama_bpe():
    names = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ]
    post = dict(
        type="Sequence", processors=[byte_level(True), begin_with("<|begin_of_text|>", 256 + 32)]
    )
    config = dict(
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token="<|begin_of_text|>",
        eos_token="<|eot_id|>",
        chat_template=LLAMA3_CHAT,
    )
    made = byte_bpe(
        names,
        last=True,
        pairs=True,
        ignore_merges=True,
        pre_tokenizer=split_by(LLAMA3),
        post_processor=post,
    )
    return made, config


def qwen2():
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    config = dict(
        tokenizer_class="Qwen2Tokenizer",
        add_bos_token=False,
        add_prefix_space=False,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token=None,
        chat_template=CHATML,
    )
    made = byte_bpe(
        names,
        last=True,
        pairs=True,
        normalizer=dict(type="NFC"),
        pre_tokenizer=split_by(QWEN2),
        post_processor=byte_level(False),
    )
    made["added_tokens"].append(added(291, "<think>", special=False))
    made["added_tokens"].append(added(292, "</think>", special=False))
    return made, config


def gpt2():
    config = dict(
        tokenizer_class="GPT2Tokenizer",
        add_prefix_space=False,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
    )
    made = byte_bpe(
        [],
        last=False,
        pre_tokenizer=byte_level(True),
        post_processor=byte_level(True) | {"trim_offsets": False},
    )
    made["model"]["vocab"]["<|endoftext|>"] = 288
    made["added_tokens"] = [added(288, "<|endoftext|>", normalized=True)]
    return made, config


def gpt_4o():
    names = ["<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    config = dict(
        tokenizer_class="GPT2Tokenizer",
        add_prefix_space=False,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        chat_template=PHI3_CHAT.replace("\\n", ""),
    )
    return byte_bpe(
        names, last=True, pairs=True, pre_tokenizer=split_by(GPT4O), post_processor=byte_level(True)
    ), config


def llama_spm():
    config = dict(
        tokenizer_class="LlamaTokenizer",
        add_bos_token=True,
        add_eos_token=False,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        chat_template=INST_CHAT,
    )
    return spm_bpe(["<unk>", "<s>", "</s>"], UNK_BOS_EOS, **LLAMA2), config


def mistral():
    names = ["[INST]", "[/INST]"]
    extra = [added(0, name) for name in names]
    pre = dict(type="Metaspace", replacement=SPACE, prepend_scheme="first", split=False)
    config = dict(
        tokenizer_class="LlamaTokenizer",
        add_bos_token=True,
        add_eos_token=False,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        chat_template=INST_CHAT,
    )
    parts = LLAMA2 | dict(normalizer=None, pre_tokenizer=pre)
    return spm_bpe(["<unk>", "<s>", "</s>", *names], UNK_BOS_EOS + extra, **parts), config


def gemma():
    before = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "\n\n", "\t"]
    rules = [added(0, token, special="\n" not in token and "\t" not in token) for token in before]
    split = dict(type="Split", pattern={"String": " "}, behavior="MergedWithPrevious", invert=False)
    config = dict(
        tokenizer_class="GemmaTokenizer",
        add_bos_token=True,
        add_eos_token=False,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        chat_template=GEMMA_CHAT,
    )
    made = spm_bpe(
        before,
        rules,
        bytes_last=True,
        normalizer=REPLACE,
        pre_tokenizer=split,
        post_processor=begin_with("<bos>", 2),
        decoder=dict(type="Sequence", decoders=DECODE),
    )
    return made, config


def phi3():
    extra = [added(0, "<|endoftext|>")]
    for name in ("<|assistant|>", "<|end|>", "<|system|>", "<|user|>"):
        extra.append(added(len(extra), name, rstrip=True))
    first = [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>", special=False, rstrip=True)]
    config = dict(
        tokenizer_class="LlamaTokenizer",
        add_bos_token=False,
        add_eos_token=False,
        bos_token="<s>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        unk_token="<unk>",
        chat_template=PHI3_CHAT,
    )
    parts = LLAMA2 | dict(post_processor=None)
    return spm_bpe(["<unk>", "<s>", "</s>"], first + extra, **parts), config


FAMILIES = {
    "smollm": smollm,
    "llama-bpe": llama_bpe,
    "qwen2": qwen2,
    "gpt2": gpt2,
    "gpt-4o": gpt_4o,
    "llama-spm": llama_spm,
    "mistral": mistral,
    "gemma": gemma,
    "phi3": phi3,
}


def build(family):
    """(tokenizer.json, tokenizer_config.json) as values."""
    made, config = FAMILIES[family]()
    rules = {
        str(token["id"]): {key: token[key] for key in token if key != "id"}
        for token in made["added_tokens"]
    }
    config = {"added_tokens_decoder": rules} | config
    return made, config | {"clean_up_tokenization_spaces": False, "model_max_length": 2048}


def n_tokens(made):
    return 1 + max(
        [*made["model"]["vocab"].values(), *(token["id"] for token in made["added_tokens"])]
    )


def text_of(value):
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
