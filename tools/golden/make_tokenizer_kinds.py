#!/usr/bin/env python3
"""Right answers for the pre-tokenisers and for the kinds of tokenizer that no vector file covers.

    python3 tools/golden/make_tokenizer_kinds.py WHEEL tests/golden/text

WHEEL is rwkv-0.8.32-py3-none-any.whl of PyPI (Apache-2.0), of which the world vocabulary and its
tokenizer are read; nothing of it is installed.

words.json: how every pre-tokeniser (but deepseek-llm, which has vectors) cuts a text, by the regex
module, with the patterns of the models' tokenizer.json (as llama.cpp quotes them), steps within
steps.
rwkv-world.json: the tokens of the world vocabulary that any of the texts could begin with at any
place, and what the wheel's own tokenizer, with the whole vocabulary, makes of the texts.
plamo2.json: a vocabulary made here, and the cheapest cut of texts by trying all of them.

Needs regex 2026.11.19. A minute.
"""

import argparse
import importlib.util
import itertools
import math
import pathlib
import random
import struct
import sys
import tempfile
import zipfile

import regex

import fixture

PROGRAM = "tools/golden/make_tokenizer_kinds.py"
AGAIN = f"python3 {PROGRAM} rwkv-0.8.32-py3-none-any.whl tests/golden/text"

# ---- pre-tokenisers ------------------------------------------------------------------------------

# As in the files, but for \s and \d, of which Python has ideas of its own.
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + SPACES
LLAMA3 = (
    SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + SPACES
)
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
GPT4O = (
    f"{BEFORE}{UPPER}*{LOWER}+{SUFFIX}?|{BEFORE}{UPPER}+{LOWER}*{SUFFIX}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|" + SPACES
)
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|" + SPACES
)
CJK_AND_KOREAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
HAN = r"\p{Script=Han}"
NO_HAN_UPPER, NO_HAN_LOWER = f"(?:(?!{HAN}){UPPER})", f"(?:(?!{HAN}){LOWER})"
KIMI = (
    f"{HAN}+|{BEFORE}{NO_HAN_UPPER}*{NO_HAN_LOWER}+{SUFFIX}?"
    f"|{BEFORE}{NO_HAN_UPPER}+{NO_HAN_LOWER}*{SUFFIX}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + SPACES
)
BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
JAIS_SPACES = "".join(rf"\s{{{n}}}(?!\S)|" for n in (512, 256, 128, 64, 32, 16, 8, 4))
# U+F900, which llama.cpp has as U+8C48, its canonical equivalent: an accident of copying.
ASIAN = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+"
)

PATTERNS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [
        QWEN2.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
            r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+"
        )
    ],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "minicpm5": [r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")],
    "seed-coder": [
        SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|" + SPACES
    ],
    "bailingmoe": [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|" + SPACES
    ],
    "exaone-moe": [
        SUFFIX + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|" + SPACES
    ],
    "jais-2": [
        SUFFIX + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        + JAIS_SPACES + r"\s{1,2}(?!\S)|\s{1}"
    ],
    "ufakzeka": [QWEN2.removeprefix(SUFFIX + "|")],
    "tekken": [GPT4O.replace(SUFFIX + "?", "").replace("{1,3}", "")],
    "gpt-4o": [GPT4O],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "youtu": [
        "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026“”‘’—\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
        "|[\u3105-\u312f]+|" + CJK,
        GPT4O.replace("{1,3}", ""),
    ],
    "kimi-k2": [KIMI],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_AND_KOREAN, r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", CJK, DEEPSEEK3],
    "spark2_5": [
        r"\p{N}{1,3}", CJK,
        DEEPSEEK3.replace(r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|", r"| ?[\p{P}\p{S}]+|[\r\n]|"),
        r"\p{N}",
    ],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN, DEEPSEEK3],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "chameleon": [
        "<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]", GPT2,
    ],
    "gemma4": [r"[^\n]+|[\n]+"],
}  # fmt: skip

# Names that share another one's patterns.
SAME = {
    "gpt-2": "phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum jina-es "
             "jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code roberta-bpe modern-bert",
    "smollm": "starcoder refact command-r codeshell exaone minerva-7b mellum2",
    "llama-bpe": "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano smaug-bpe "
                 "dbrx glm4 chatglm-bpe",
    "qwen2": "deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 kormo f2llmv2",
    "bailingmoe": "bailingmoe2 llada-moe",
    "gpt-4o": "llama4 kanana2 talkie minimax-m2 granite-embed-multi-97m",
    "tiny_aya": "cohere2moe",
    "bloom": "poro-chat gpt3-finnish",
    "deepseek-v3": "hunyuan-dense joyai-llm hy_v4",
    "gemma4": "granite-embed-multi-311m sarvam-moe",
}  # fmt: skip

TEXTS = [
    "Hello world! Café déjà vu — 123 😊",
    "It's WE'LL they'VE I'm  you'd 'tis it'S'S",
    "HTTPServer camelCase ALLCAPS Title McDonald's iPhone",
    "1 12 123 1234 12345 123456789 1,234.56 ٣٤٥٦٧ ½²",
    "a\nb\r\nc\n\n\nd   \n  e\t\tf  ",
    "   leading, trailing   ",
    "!!! ??? ... --- (x) [y] {z} <w> a+b=c $5 #tag @me ~^|`",
    "北京大学2024年，你好。ひらがなカタカナ、한국어 텍스트ㅋㅋ！",
    "ไทย ລາວ ខ្មែរ မြန်မာ हिन्दी বাংলা தமிழ் العربية עברית",
    "e\u0301 n\u0303 Z\u030cluty \u1e9e ǅ ʰ ª",
    "for (i = 0; i < n; i++) {\n\tsum += x[i] * w[i];\n}\n",
    "https://example.org/a/b?c=d&e=f\n/path//to/\n",
    "\u00a0nbsp\u2003em\u3000ideographic\u180emongolian\u200bzero\x1cfs\x85nel",
    "<sentinel:12> IMGIMGABCZ ''quotes'' ‘curly’ “double” …",
    "Ünïcödé ΑΒΓδεζ Привет МИР ქართული Ꭰꭰ 𐐀𐐨 ＡＢＣａｂｃ １２３",
    " " * 37 + "x" + " " * 600 + "\n" + " " * 3,
]


def spelled(pattern):
    """Whitespace and digits as Unicode has them: Python's \\s counts U+001C to U+001F too."""
    names = {r"\s": r"\p{White_Space}", r"\S": r"\P{White_Space}", r"\d": r"\p{Nd}"}
    return regex.sub(r"\\.", lambda match: names.get(match.group(), match.group()), pattern)


def split(patterns, text):
    pieces = [text]
    for pattern in patterns:
        cut = []
        for piece in pieces:
            end = 0
            for match in regex.finditer(spelled(pattern), piece):
                cut += [piece[end : match.start()], match.group()]
                end = match.end()
            cut.append(piece[end:])
        pieces = [piece for piece in cut if piece]
    return pieces


def write_words(root):
    out = fixture.header(PROGRAM, AGAIN, ["regex"])
    out["texts"] = TEXTS
    # Lengths in characters: the words are the text, cut.
    out["families"] = [
        dict(
            names=[name, *SAME.get(name, "").split()],
            words=[[len(word) for word in split(patterns, text)] for text in TEXTS],
        )
        for name, patterns in PATTERNS.items()
    ]
    fixture.write_json(root / "words.json", out)


# ---- rwkv ----------------------------------------------------------------------------------------


def write_rwkv(wheel, root):
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        path = pathlib.Path(folder, "rwkv", "rwkv_tokenizer.py")
        spec = importlib.util.spec_from_file_location("rwkv_tokenizer", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        world = module.TRIE_TOKENIZER(str(path.with_name("rwkv_vocab_v20230424.txt")))
    bytes_of = [text.encode() for text in TEXTS]
    used = {bytes([byte]) for byte in range(256)}
    longest = max(map(len, world.token2idx))
    for text in bytes_of:
        for at in range(len(text)):
            for end in range(at + 1, min(at + longest, len(text)) + 1):
                if text[at:end] in world.token2idx:
                    used.add(text[at:end])
    tokens = sorted(used, key=lambda token: world.token2idx[token])
    place = {world.token2idx[token]: i + 1 for i, token in enumerate(tokens)}
    out = fixture.header(PROGRAM, AGAIN, [])
    # Spelled as the converter does it: Python's way to write bytes.
    out["tokens"] = ["<s>"] + [repr(token)[2:-1] for token in tokens]
    out["cases"] = [
        dict(text=text, ids=[place[i] for i in world.encode(text)]) for text in TEXTS
    ]
    fixture.write_json(root / "rwkv-world.json", out)


# ---- plamo2 --------------------------------------------------------------------------------------


def round_half_away(x):
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def float32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def cheapest(text, costs):
    """Every cut of the text, by brute force; of the cheapest ones that with the longest first token,
    then the longest second one. A lone character that is no token costs 10 million, and so does one
    that is, where that is cheaper; a tie goes to the token."""
    best = None
    for gaps in itertools.product((False, True), repeat=max(0, len(text) - 1)):
        pieces, start = [], 0
        for i, gap in enumerate(gaps):
            if gap:
                pieces.append(text[start : i + 1])
                start = i + 1
        pieces.append(text[start:])
        total, choice = 0, []
        for piece in pieces:
            cost = costs.get(piece, math.inf)
            if cost >= 20_000_000:
                cost = math.inf
            if len(piece) == 1 and 10_000_000 < cost:
                cost, piece = 10_000_000, None
            total += cost
            choice.append(piece)
        if total == math.inf:
            continue
        key = (total, [-len(piece) for piece in pieces])
        if best is None or key < best[0]:
            best = (key, choice, pieces)
    return list(zip(best[1], best[2]))


def write_plamo2(root):
    rng = random.Random(7)
    words = ["a", "b", "c", "ab", "bc", "abc", "abab", "cab", "日", "本", "日本", "本語", "日本語", "é", "xé",
             "😊", " ", "  ", " a", "b ", "zz", "q"]  # fmt: skip
    scores = {word: float32(-rng.randrange(1, 120) / 8 - 0.00013 * len(word)) for word in words}
    scores |= {"zz": -3000.0, "q": -1500.0, "aa": 0.0, "aaa": 0.0}  # unusable; dearer than unknown; ties
    rows = [("<|plamo:unk|>", 2, 0.0), ("<|plamo:bos|>", 3, 0.0), ("<|plamo:eos|>", 3, 0.0)]
    rows += [(f"<0x{byte:02X}>", 6, 0.0) for byte in range(256)]
    rows += [(word, 1, score) for word, score in scores.items()]
    ids = {row[0]: i for i, row in enumerate(rows)}
    costs = {word: -round_half_away(score * 1e4) for word, score in scores.items()}
    alphabet = "aaabbbccc日本語é😊 zqx\n"
    texts = ["", "a", "aaaa", "aaaaa", "zz", "q", "日本語", "日本語日本", "abab", "\ufeffab", "😊😊"]
    texts += ["".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 13))) for _ in range(60)]
    cases = []
    for text in texts:
        answer = []
        for token, piece in cheapest(text, costs) if text else []:
            answer += [ids[token]] if token else [ids[f"<0x{b:02X}>"] for b in piece.encode()]
        cases.append(dict(text=text, ids=answer))
    out = fixture.header(PROGRAM, AGAIN, [])
    out["tokens"] = [row[0] for row in rows]
    out["types"] = [row[1] for row in rows]
    out["scores"] = [row[2] for row in rows]
    out["cases"] = cases
    fixture.write_json(root / "plamo2.json", out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    write_words(args.out)
    write_rwkv(args.wheel, args.out)
    write_plamo2(args.out)


if __name__ == "__main__":
    sys.exit(main())
