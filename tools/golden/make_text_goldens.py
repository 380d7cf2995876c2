#!/usr/bin/env python3
"""Golden token ids of the smollm vocabulary, and golden renderings of chat templates.

    python3 tools/golden/make_text_goldens.py MODEL.gguf tests/golden/text

MODEL.gguf is the default model as set-up fetches it; only its vocabulary and its template are read.
The ids come from bpe.py and must equal those of Hugging Face's tokenizers library; the renderings
come from Jinja2 in the environment that transformers gives to chat templates (chat_render.py).

Needs gguf 0.19.0, numpy 2.4.6, regex 2026.11.19, tokenizers 0.23.3, Jinja2 3.1.6. A few seconds.
"""

import argparse
import pathlib

from jinja2.exceptions import TemplateError

import chat_render
import fixture
from bpe import Bpe
from chat_templates import TEMPLATES
from llama_reference import GgufFile, sha256_of

PROGRAM = "tools/golden/make_text_goldens.py"
AGAIN = f"python3 {PROGRAM} MODEL.gguf tests/golden/text"
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# Characters are old ones (Unicode 13 and before), so that every engine's tables agree about their
# class.
STRINGS = [
    "",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n",
    "\n ",
    "\t\n \t",
    "    \n\n        ",
    "a",
    " a",
    "a ",
    " a ",
    "  a",
    "a  b   c    d     e",
    "Hello world!",
    " Hello  world! ",
    "Hello world! Café déjà vu — 123 😊",
    # letters, cases, contractions: only the lower-case ones are suffixes of their own
    "I'm sure you've seen it's here, they're late, we'll go, he'd say, don't",
    "I'M SURE YOU'VE SEEN IT'S HERE, THEY'RE LATE, WE'LL GO, HE'D SAY, DON'T",
    "I’m sure it’s ‘quoted’ and “double”",
    "'s't're've'm'll'd",
    "' s '  t",
    "rock'n'roll o'clock",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "McDonald's iPhone eBay XMLHttpRequest snake_case kebab-case",
    # digits are one token each, of every script
    "0",
    "7",
    "42",
    "3.14159",
    "1234567890",
    "in 2024, 1,000,000.50 or 1e-10",
    "a1b22c333",
    " 1 22  333",
    "½ ² ³ ① Ⅳ ⅷ",
    "٠١٢٣٤ ०१२ １２３",
    # accents, composed and combining; other scripts; no spaces between words
    "Äpfel, Öl, Übermut, Straße, façade, naïve, Ångström",
    "e\u0301 a\u0308 n\u0303 o\u0302\u0323 \u0301alone",
    "Привет, мир! Как дела?",
    "Γειά σου Κόσμε",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "你好，世界。我想在apple工作1314天～",
    "こんにちは世界、カタカナ。",
    "안녕하세요 세계",
    "Cửa Việt",
    "កាន់តែពិសេស",
    # emoji: plain, skin tone, joined, flags, keycap; mathematics outside the first plane
    "😀",
    "👍🏽",
    "👩‍👩‍👧‍👦 family",
    "🇩🇪🇯🇵",
    "1️⃣ #️⃣",
    "🚀🚀🚀 go ❤️",
    "𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛",
    # spaces that are not U+0020, and marks that are none
    "a\u00a0b\u3000c\u2003d\u2028e\u0085f",
    "a\u200bb\ufeffc\u00add",
    "tab\tseparated\t\tvalues\n\n\nend",
    "trailing spaces   \n   leading",
    "line one\nline two\r\nline three\rline four",
    # punctuation and code
    "!!!!!! ??? ... ,,, ;;; --- === ~~~",
    "a+b=c; x<=y && z!=w || !q",
    "https://example.com/path?x=1&y=%20#frag",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n\tpass\n",
    'int main(void) {\n    printf("%d\\n", 42);\n    return 0;\n}\n',
    '{"key": [1, 2.5, null, true], "s": "a\\u00e9"}',
    '<div class="x">&amp;</div>',
    "SELECT * FROM t WHERE id = 10;",
    "a\\b\\\\c `code` ```block``` $x^2$ @user #tag",
    # special tokens inside text, broken ones, neighbours
    "<|im_start|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "a<|im_end|>b",
    " <|im_end|> ",
    "<|im_start|><|im_start|><|im_end|>",
    "<|im_start",
    "|im_end|>",
    "<|IM_START|>",
    "<|endoftext|>text<|endoftext|>",
    "<repo_name>x<file_sep>y<empty_output>",
    "<| im_end |>",
    "<<|im_end|>>",
    "it's<|im_end|>'s 12<|im_end|>34",
    # ends in the middle
    "The quick brown fox jum",
    "an unfinished (bracket",
    "ends with an accent base e\u0301",
    "ends with a joiner 👩\u200d",
    # bytes without a token: U+0004 and a character whose first byte is F1 lose bytes, as in
    # llama.cpp
    "a\u0004b",
    "a\U00050000b",
]


def tokenizer_fixture(bpe, head):
    special_twin, plain_twin = bpe.hugging_face(special=True), bpe.hugging_face(special=False)
    cases = []
    for text in STRINGS:
        plain, special = bpe.encode(text, special=False), bpe.encode(text, special=True)
        assert plain == plain_twin.encode(text, add_special_tokens=False).ids, text
        assert special == special_twin.encode(text, add_special_tokens=False).ids, text
        lossless = bpe.bytes(plain) == text.encode() == bpe.bytes(special)
        cases.append({"text": text, "plain": plain, "special": special, "lossless": lossless})
    assert len(set(STRINGS)) == len(STRINGS)
    assert sum(not case["lossless"] for case in cases) == 2
    return head | {"cases": cases}


def rendered(template, case):
    """Text or the message of the error; names are what the program knows beside the messages."""
    tokens = {key: template[key] for key in ("bos_token", "eos_token") if template[key] is not None}
    names = tokens | case.get("names", {})
    out = {
        "name": case["name"],
        "messages": case["messages"],
        "tools": case.get("tools"),
        "add_generation_prompt": case.get("add_generation_prompt", True),
        "names": case.get("names", {}),
        "clock": None,
        "text": None,
        "error": None,
    }

    def now(pattern):
        out["clock"] = pattern
        return chat_render.clock_mark(pattern)

    try:
        out["text"] = chat_render.render(
            template["source"],
            out["messages"],
            out["add_generation_prompt"],
            out["tools"],
            now,
            **names,
        )
    except TemplateError as error:
        out["error"] = error.message
    assert (out["error"] is not None) == case.get("fails", False), (template["name"], case["name"])
    return out


def template_fixture(smollm, head):
    out = []
    for template in TEMPLATES:
        template = template | ({"source": smollm} if template["source"] is None else {})
        cases = [rendered(template, case) for case in template["cases"]]
        out.append(
            {key: template[key] for key in ("name", "source", "bos_token", "eos_token")}
            | {"cases": cases}
        )
    return head | {"templates": out}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    assert sha256_of(args.model) == MODEL_SHA256, f"{args.model} is not the default model"
    args.out.mkdir(parents=True, exist_ok=True)
    file = GgufFile(args.model)
    model = {"model": {"file": "SmolLM2-135M-Instruct-Q4_1.gguf", "sha256": MODEL_SHA256}}

    head = fixture.header(PROGRAM, AGAIN, ["gguf", "regex", "tokenizers"]) | model
    fixture.write_json(args.out / "smollm.json", tokenizer_fixture(Bpe.from_gguf(file), head))
    head = fixture.header(PROGRAM, AGAIN, ["gguf", "Jinja2"]) | model
    fixture.write_json(
        args.out / "templates.json", template_fixture(file.get("tokenizer.chat_template"), head)
    )


if __name__ == "__main__":
    main()
