#!/usr/bin/env python3
"""Small tokenizer.json files that cover the components of Hugging Face's tokenizers library, each
with the ids that the library gives for a list of texts.

    python3 tools/golden/make_tokenizer_json.py tests/golden/text

The vocabularies are trained on the texts of this file and on GPL-3, as Debian installs it. Every
file is {maker, versions, again, tokenizer: the tokenizer.json itself, cases: [{text, ids (all added
tokens found), plain (special ones are text), decoded (of ids, special ones left out)}]}. `plain` is
null where the library's model makes special tokens of text all the same (Unigram), `decoded` where
the library puts pieces together in a way that single pieces do not show.

Needs tokenizers 0.23.3, sentencepiece 0.2.3. A few seconds.
"""

import argparse
import base64
import json
import pathlib
import tempfile

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

import fixture

PROGRAM = "tools/golden/make_tokenizer_json.py"
AGAIN = f"python3 {PROGRAM} tests/golden/text"
GPL = pathlib.Path("/usr/share/common-licenses/GPL-3")
MARK = "\u2581"

OTHER_TEXTS = [
    "Café déjà vu, naïve façade; Ångström über Zürich, señor, Œuvre, İstanbul ǅ ß.",
    "Привет, мир! Как дела сегодня? Ёлка.",
    "你好，世界。今天天气很好。日本語のテキスト、ひらがなとカタカナ。",
    "안녕하세요 세계 한국어 문장",
    "مرحبا بالعالم كيف حالك",
    "नमस्ते दुनिया",
    "def f(x):\n    return x + 1\n\nfor i in range(10):\n\tprint(i)\n",
    "It's 12345 o'clock, isn't it? They'll say we've 3.14159 and 1,000,000.",
]

TEXTS = [
    "",
    " ",
    "   ",
    "\n",
    "Hello world!",
    " Hello  world ",
    "  leading and trailing   ",
    "tabs\tand\nnew\r\nlines\n\n\nhere",
    "It's we'll THEY'VE don't I'm he'd",
    "The program is free software: you can redistribute it.",
    "numbers 1 12 123 1234 12345 3.14 1,000",
    "punctuation!!! ... (a) [b] {c} <d> a-b_c@d.e #f $g 5% & x*y=z",
    "Café déjà vu — naïve façade",
    "Cafe\u0301 A\u030angstro\u0308m \u1e9b\u0323 \ufb01 \u00bd \u2460",
    "ÄÖÜ ß İstanbul ŉ ΑΣΣ",
    "Привет, мир! Ёлка",
    "你好，世界。日本語テキスト hello世界",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "😊👍🏽 emoji 👨‍👩‍👧 ❤️",
    "def f(x):\n    return x + 1\n",
    "a\u00a0b\u2003c\u3000d\u200be\u2028f",
    "<s>text</s> <unk> <|end|> [MASK] <0x0A>",
    "x<|end|>y <|end|>  z",
    "word words AddedWord addedword Addedwords xAddedWord _AddedWord",
    f"{MARK}marked{MARK} text {MARK}{MARK}",
    "a##b ##c word</w> \u0120x",
    "nul\u0000and\u0007control\ufffd",
]

GPT_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K_WORDS = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
               r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
               r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
               r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+"
               r"|\s+(?!\S)|\s+")


def corpus():
    return GPL.read_text().split("\n")[:120] + OTHER_TEXTS * 3


def train_bpe(tokenizer, size, special, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  **options)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def frame(first, last, tokenizer):
    """<s> $A, or with an end."""
    names = [name for name in (first, last) if name]
    single = " ".join(part for part in (first, "$A", last) if part)
    return processors.TemplateProcessing(
        single=single, pair=None,
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in names])


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    train_bpe(t, 420, ["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def byte_level_prefix():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    train_bpe(t, 400, ["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")),
                                                    ("<s>", t.token_to_id("<s>")))
    return t


def split_byte_level():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(GPT_WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train_bpe(t, 420, [], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens(["<s>", "<|end|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            frame("<s>", None, t)])
    return t


def split_digits():
    """As DeepSeek and others chain them."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex("[\r\n]"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s+$"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥ࠀ-一가-퟿]+"), "isolated"),
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return train_bpe(t, 400, ["<s>", "<|end|>"],
                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def cased_words():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(O200K_WORDS), "removed", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return train_bpe(t, 400, ["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def with_byte_tokens(tokenizer, scored=False):
    """Puts <0x00> to <0xFF> into a trained model and lets it fall back on them."""
    value = json.loads(tokenizer.to_str())
    model = value["model"]
    size = len(model["vocab"])
    for byte in range(256):
        model["vocab"][f"<0x{byte:02X}>"] = size + byte
    model["byte_fallback"] = True
    model["fuse_unk"] = True
    return Tokenizer.from_str(json.dumps(value))


def spaces_decoder(strip):
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def prepended():
    """Llama 2's old way."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    train_bpe(t, 420, ["<unk>", "<s>", "</s>"], limit_alphabet=60, max_token_length=12)
    t = with_byte_tokens(t)
    t.decoder = spaces_decoder(True)
    t.add_tokens([AddedToken("AddedWord", normalized=True)])
    t.add_special_tokens([AddedToken("<|end|>", rstrip=True, normalized=False)])
    t.post_processor = frame("<s>", "</s>", t)
    return t


def metaspace_first():
    """Llama 2's new way."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    train_bpe(t, 420, ["<unk>", "<s>", "</s>"], limit_alphabet=60, max_token_length=12)
    t = with_byte_tokens(t)
    t.decoder = spaces_decoder(True)
    t.add_special_tokens(["<|end|>"])
    return t


def merged_with_previous():
    """Gemma's."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Replace(" ", MARK)
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    train_bpe(t, 400, ["<pad>", "</s>", "<s>", "<unk>"], limit_alphabet=60, max_token_length=12)
    t = with_byte_tokens(t)
    t.decoder = spaces_decoder(False)
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken(MARK * 2, normalized=False)])
    t.post_processor = frame("<s>", None, t)
    return t


def unknown_characters():
    """Neither bytes nor a fused unknown token."""
    t = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return train_bpe(t, 300, ["[UNK]"], limit_alphabet=40, continuing_subword_prefix="##")


def word_ends():
    """CLIP's."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                         normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"),
                             "removed", invert=True)])
    t.decoder = decoders.BPEDecoder(suffix="</w>")
    return train_bpe(t, 320, ["<unk>", "<|end|>"], limit_alphabet=50, end_of_word_suffix="</w>")


def wordpiece(lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=420, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        show_progress=False, limit_alphabet=90)
    t.train_from_iterator(corpus(), trainer)
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    return t


def bert_lower():
    return wordpiece(True)


def bert_cased():
    t = wordpiece(False)
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")),
                                                 ("[CLS]", t.token_to_id("[CLS]")))
    return t


def train_unigram(t, size=360):
    trainer = trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"],
                                      unk_token="<unk>", show_progress=False)
    t.train_from_iterator(corpus(), trainer)
    return t


def unigram():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    train_unigram(t)
    t.post_processor = frame(None, "</s>", t)
    return t


def charsmap():
    """The compiled form of a few replacements, as SentencePiece writes it into its models."""
    rules = {"\u00a0": " ", "\u3000": " ", "\u2003": " ", "\u200b": "", "\ufb01": "fi",
             "\u00bd": "1/2", "\u2460": "1", "e\u0301": "\u00e9", "o\u0308": "\u00f6",
             "\u1e9b\u0323": "\u1e69", "\u1e9b": "\u1e61", "\n": " ", "\t": " ", "\r": " ",
             "Ä": "ä", "ß": "ss"}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines = [" ".join(f"{ord(c):X}" for c in left) + "\t"
                 + " ".join(f"{ord(c):X}" for c in right) for left, right in rules.items()]
        (folder / "rules.tsv").write_text("\n".join(lines) + "\n")
        (folder / "text").write_text("\n".join(corpus()))
        sentencepiece.SentencePieceTrainer.train(
            input=folder / "text", model_prefix=str(folder / "model"), vocab_size=300,
            normalization_rule_tsv=str(folder / "rules.tsv"), minloglevel=2,
            hard_vocab_limit=False)
        data = (folder / "model.model").read_bytes()
    return field_of(field_of(data, 3), 2)


def field_of(data, wanted):
    """The bytes of one length-delimited field of a protocol buffer."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 2:
            length = number()
            at += length
            if key >> 3 == wanted:
                return data[at - length:at]
        elif key & 7 == 0:
            number()
        else:
            at += 4 if key & 7 == 5 else 8
    raise ValueError(f"no field {wanted}")


def unigram_precompiled():
    """XLM-RoBERTa's and T5's."""
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()),
                                         normalizers.Strip(left=False, right=True),
                                         normalizers.Replace(Regex(" {2,}"), MARK)])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace()
    train_unigram(t)
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    return t


def unigram_bytes():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Replace(" ", MARK)
    train_unigram(t, 300)
    value = json.loads(t.to_str())
    value["model"]["vocab"] += [[f"<0x{byte:02X}>", -99.0] for byte in range(256)]
    value["model"]["byte_fallback"] = True
    t = Tokenizer.from_str(json.dumps(value))
    t.decoder = spaces_decoder(False)
    return t


def chained():
    """Pre-tokenizers and behaviours that are seen less often."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(),
                                         normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.CharDelimiterSplit("_"),
        pre_tokenizers.Split(" ", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[.!]"), "contiguous"),
        pre_tokenizers.Punctuation("merged_with_previous"),
        pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split(Regex(r"(?=(\p{N}{3})+(?!\p{N}))"), "isolated"),
        pre_tokenizers.Split(Regex(r"\bthe\b|^\w|\w$"), "isolated")])
    return train_bpe(t, 320, ["<unk>"], limit_alphabet=120)


def added_tokens():
    """Every rule of added tokens, on a text that is normalised."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Lowercase()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    train_bpe(t, 320, ["<unk>"], limit_alphabet=80)
    t.add_tokens([AddedToken("AddedWord", single_word=True, normalized=True),
                  AddedToken("software", single_word=True, lstrip=True, normalized=False),
                  AddedToken("trailing", rstrip=True, lstrip=True, normalized=True),
                  AddedToken("is", normalized=False), AddedToken("isn", normalized=False)])
    t.add_special_tokens([AddedToken("<|end|>", lstrip=True, rstrip=True, normalized=False),
                          AddedToken("<s>", normalized=True), AddedToken("</s>", rstrip=True)])
    return t


def byte_normalized():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.ByteLevel()])
    t.decoder = decoders.ByteLevel()
    train_bpe(t, 380, ["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
              max_token_length=10)
    return t


MAKERS = [byte_level, byte_level_prefix, split_byte_level, split_digits, cased_words, prepended,
          metaspace_first, merged_with_previous, unknown_characters, word_ends, bert_lower,
          bert_cased, unigram, unigram_precompiled, unigram_bytes, chained, added_tokens,
          byte_normalized]
# The end of the last word is no space; a first piece keeps its ## there.
OWN_JOINING = {"word_ends", "unknown_characters"}


def with_old_merges(value):
    """Merges as "a b", as files before 2024 have them."""
    merges = value["model"].get("merges")
    if merges and not any(" " in part for merge in merges for part in merge):
        value["model"]["merges"] = [" ".join(merge) for merge in merges]
    return value


def case(tokenizer, text, joins):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    if isinstance(tokenizer.model, models.Unigram):
        plain = None
    return {"text": text, "ids": ids, "plain": plain,
            "decoded": tokenizer.decode(ids, skip_special_tokens=True) if joins else None}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("folder", type=pathlib.Path)
    folder = arguments.parse_args().folder
    packages = ["tokenizers", "sentencepiece"]
    for number, make in enumerate(MAKERS):
        tokenizer = make()
        value = json.loads(tokenizer.to_str())
        if number % 2 == 0:
            value = with_old_merges(value)
        tokenizer = Tokenizer.from_str(json.dumps(value))
        name = make.__name__
        cases = [case(tokenizer, text, name not in OWN_JOINING) for text in TEXTS]
        fixture.write_json(folder / f"hf-{name.replace('_', '-')}.json",
                           fixture.header(PROGRAM, AGAIN, packages)
                           | {"tokenizer": value, "cases": cases})


if __name__ == "__main__":
    main()
