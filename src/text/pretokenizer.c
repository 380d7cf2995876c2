/*
 * pretokenizer.c - the table of pre-tokenisers.
 *
 * Whitespace is spelled \p{White_Space}: PCRE2's own \s also holds U+180E, which the tokenisers
 * that models were trained with do not count. The names and which of them share a pattern are facts
 * of published files; the patterns are those of the models' tokenizer.json.
 */
#include "text/pretokenizer.h"

#include <string.h>

#include "base/strbuf.h"

#define SPACE "\\p{White_Space}"
#define NOT_SPACE "\\P{White_Space}"
#define SPACES_BUT_LAST SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define ONE_DIGIT "\\p{N}"
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACES_BUT_LAST
/* What most families end in: punctuation with the line ends after it, line ends, spaces. */
#define REST(not_punctuation, after) " ?[^" SPACE not_punctuation "]+" after "|" SPACE "*[\\r\\n]+|"
/* The llama 3 family: letters with whatever stands before them, digits in groups. */
#define LETTERS_AND_REST(letters, not_punctuation, digits)                                         \
    "[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits                                                   \
    "|" REST(not_punctuation, "[\\r\\n]*") SPACES_BUT_LAST
#define LLAMA3(letters, not_punctuation, digits)                                                   \
    SUFFIX "|" LETTERS_AND_REST(letters, not_punctuation, digits)
/* The gpt-4o family: letters change from upper to lower case at most once in a word. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED(upper, lower, suffix)                                                                \
    BEFORE upper "*" lower "+" suffix "|" BEFORE upper "+" lower "*" suffix
#define GPT4O(suffix, digits)                                                                      \
    CASED(UPPER, LOWER, suffix) "|" digits "|"                                                     \
    REST("\\p{L}\\p{N}", "[\\r\\n/]*") SPACES_BUT_LAST
/* The script, where a bare \\p{Han} also has what is written with it: full stops and brackets. */
#define HAN "\\p{sc:Han}"
#define NO_HAN "(?!" HAN ")"

/* DeepSeek's classes: the letters that have case (as Unicode had them then), punctuation, Chinese,
 * Japanese and Korean. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}"         \
    "-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}"         \
    "\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"         \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-"           \
    "\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-"                 \
    "\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-"                 \
    "\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-"         \
    "\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}"         \
    "-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-"                \
    "\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-"         \
    "\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"          \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"         \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}"         \
    "-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-"                \
    "\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-"                 \
    "\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-"          \
    "\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"
#define WIDE_PUNCTUATION                                                                           \
    "!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}"
#define CJK_AND_KOREAN "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"
#define CJK_AND_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+"
#define DEEPSEEK3_WORDS                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"                                        \
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
#define DEEPSEEK3                                                                                  \
    DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+[\r\n]*|" SPACE "*[\r\n]+|" SPACES_BUT_LAST
/* From U+F900 on, where llama.cpp has the character that it is equivalent to, U+8C48. */
#define ASIAN_SCRIPTS                                                                              \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}\\x{30A0}-"      \
    "\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}\\x{1780}-"  \
    "\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}"      \
    "\\x{1100}-\\x{11FF}]+"
/* Bloom's: all but spaces, bars, brackets and the full stops of several scripts. */
#define BLOOM                                                                                      \
    " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]+"

enum { PATTERNS_MAX = 6 };

typedef struct family {
    const char *patterns[PATTERNS_MAX];
} family;

static const family gpt2 = {{GPT2}};
static const family digits_gpt2 = {{ONE_DIGIT, GPT2}};
static const family llama3 = {{LLAMA3("\\p{L}", "\\p{L}\\p{N}", "\\p{N}{1,3}")}};
static const family qwen2 = {{LLAMA3("\\p{L}", "\\p{L}\\p{N}", "\\p{N}")}};
static const family qwen35 = {{LLAMA3("[\\p{L}\\p{M}]", "\\p{L}\\p{M}\\p{N}", "\\p{N}")}};
static const family laguna = {{"[^\\n]+|[\\n]+", LLAMA3("\\p{L}", "\\p{L}\\p{N}", "\\p{N}")}};
static const family minicpm5 = {{"\\p{N}{1,3}", LLAMA3("\\p{L}", "\\p{L}\\p{N}", "\\p{N}+")}};
static const family seed_coder = {
    {SUFFIX "|" BEFORE "\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}\\r\\n]+|" SPACE
            "*[\\r\\n]+|" SPACES_BUT_LAST}};
static const family bailing = {
    {"'(?i:[sdmt]|ll|ve|re)|" BEFORE "\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|" SPACE
     "*[\\r\\n]|" SPACES_BUT_LAST}};
static const family exaone_moe = {
    {SUFFIX "|" BEFORE "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^" SPACE
            "\\p{L}\\p{N}]+[\\r\\n/]?|" SPACE "*[\\r\\n]|" SPACES_BUT_LAST}};
static const family jais2 = {
    {SUFFIX "|" BEFORE "\\p{L}+|\\p{N}{1,3}|" REST("\\p{L}\\p{N}", "[\\r\\n]*")
     SPACE "{512}(?!" NOT_SPACE ")|" SPACE "{256}(?!" NOT_SPACE ")|"
     SPACE "{128}(?!" NOT_SPACE ")|" SPACE "{64}(?!" NOT_SPACE ")|"
     SPACE "{32}(?!" NOT_SPACE ")|" SPACE "{16}(?!" NOT_SPACE ")|"
     SPACE "{8}(?!" NOT_SPACE ")|" SPACE "{4}(?!" NOT_SPACE ")|"
     SPACE "{1,2}(?!" NOT_SPACE ")|" SPACE}};
static const family tekken = {{GPT4O("", "\\p{N}")}};
static const family gpt4o = {{GPT4O(SUFFIX "?", "\\p{N}{1,3}")}};
static const family tiny_aya = {
    {"\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*\\b)", GPT4O(SUFFIX "?", "\\p{N}{1,3}")}};
static const family youtu = {
    {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[!\\x{2026}\\x{201C}\\x{201D}\\x{2018}\\x{2019}"
     "\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+"
     "|[\\x{3105}-\\x{312F}]+|" CJK_AND_KANA,
     GPT4O(SUFFIX "?", "\\p{N}")}};
static const family kimi = {
    {HAN "+|" CASED("(?:" NO_HAN UPPER ")", "(?:" NO_HAN LOWER ")", SUFFIX "?")
     "|\\p{N}{1,3}|" REST("\\p{L}\\p{N}", "[\\r\\n]*") SPACES_BUT_LAST}};
static const family falcon = {{"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}};
static const family bloom = {{BLOOM}};
static const family viking = {{BLOOM, ONE_DIGIT}};
static const family deepseek_llm = {{"[\r\n]", SPACE "?[" CASED_LETTERS "]+",
                                     SPACE "?[" WIDE_PUNCTUATION "]+", SPACE "+\\z", CJK_AND_KOREAN,
                                     "\\p{N}+"}};
static const family deepseek_coder = {
    {"[\r\n]", SPACE "?\\p{L}+", SPACE "?\\p{P}+", CJK_AND_KOREAN, ONE_DIGIT}};
static const family deepseek3 = {{"\\p{N}{1,3}", CJK_AND_KANA, DEEPSEEK3}};
/* Numbers in groups of three from the end: whole numbers first, so that looking ahead is done once
 * a number. */
static const family afmoe = {{"\\p{N}+", "\\A\\p{N}{1,2}(?=(?:\\p{N}{3})*+\\z)|\\p{N}{3}",
                              ASIAN_SCRIPTS, DEEPSEEK3}};
static const family superbpe = {{"\\p{N}+", "(?=(?:\\p{Nd}{3})+(?!\\p{Nd}))"}};
static const family chameleon = {{"<sentinel:[0-9]+>", "(?:IMGIMG)(?:A|B|C|D|E|F|G|H|I){1,4}Z",
                                  "[\\t\\n]|    |  ", ONE_DIGIT, "[\\p{P}!-/:-@\\[-`{-~]", GPT2}};

/* DeepSeek's, with each line end apart, and what is still a digit. */
static const family spark = {
    {"\\p{N}{1,3}", CJK_AND_KANA,
     DEEPSEEK3_WORDS "| ?[\\p{P}\\p{S}]+|[\r\n]|" SPACES_BUT_LAST, ONE_DIGIT}};
static const family ufakzeka = {{LETTERS_AND_REST("\\p{L}", "\\p{L}\\p{N}", "\\p{N}")}};
/* Of vocabularies of characters; no merge crosses a line's end. */
static const family lines = {{"[^\\n]+|\\n+"}};
static const family gemma4 = {{"[^\\n]+|\\n+"}};

typedef struct row {
    struct {
        const char *name;
        bool whole_words, adds_bos;
    } traits;
    const family *family;
} row;

static const row rows[] = {
    {{"gpt-2", false, false}, &gpt2},
    {{"phi-2", false, false}, &gpt2},
    {{"mpt", false, false}, &gpt2},
    {{"olmo", false, false}, &gpt2},
    {{"jais", false, false}, &gpt2},
    {{"trillion", false, false}, &gpt2},
    {{"granite-docling", false, false}, &gpt2},
    {{"exaone4", false, false}, &gpt2},
    {{"gigachat", false, false}, &gpt2},
    {{"a.x-4.0", false, false}, &gpt2},
    {{"mellum", false, false}, &gpt2},
    {{"jina-es", false, false}, &gpt2},
    {{"jina-de", false, false}, &gpt2},
    {{"jina-v1-en", false, false}, &gpt2},
    {{"jina-v2-es", false, false}, &gpt2},
    {{"jina-v2-de", false, false}, &gpt2},
    {{"jina-v2-code", false, false}, &gpt2},
    {{"roberta-bpe", false, false}, &gpt2},
    {{"modern-bert", false, false}, &gpt2},
    {{"smollm", false, false}, &digits_gpt2},
    {{"starcoder", false, false}, &digits_gpt2},
    {{"refact", false, false}, &digits_gpt2},
    {{"command-r", false, false}, &digits_gpt2},
    {{"codeshell", false, false}, &digits_gpt2},
    {{"exaone", false, false}, &digits_gpt2},
    {{"minerva-7b", false, false}, &digits_gpt2},
    {{"mellum2", false, false}, &digits_gpt2},
    {{"llama-bpe", true, true}, &llama3},
    {{"llama3", true, true}, &llama3},
    {{"llama-v3", true, true}, &llama3},
    {{"falcon3", true, true}, &llama3},
    {{"falcon-h1", true, true}, &llama3},
    {{"pixtral", true, true}, &llama3},
    {{"midm-2.0", true, true}, &llama3},
    {{"lfm2", true, true}, &llama3},
    {{"jina-v5-nano", true, true}, &llama3},
    {{"smaug-bpe", true, false}, &llama3},
    {{"dbrx", false, false}, &llama3},
    {{"glm4", false, false}, &llama3},
    {{"chatglm-bpe", false, false}, &llama3},
    {{"qwen2", false, false}, &qwen2},
    {{"deepseek-r1-qwen", false, false}, &qwen2},
    {{"megrez", false, false}, &qwen2},
    {{"stablelm2", false, false}, &qwen2},
    {{"hunyuan", false, false}, &qwen2},
    {{"solar-open", false, false}, &qwen2},
    {{"grok-2", false, false}, &qwen2},
    {{"kormo", false, false}, &qwen2},
    {{"f2llmv2", false, false}, &qwen2},
    {{"qwen35", false, false}, &qwen35},
    {{"laguna", false, false}, &laguna},
    {{"minicpm5", true, false}, &minicpm5},
    {{"seed-coder", false, false}, &seed_coder},
    {{"bailingmoe", false, false}, &bailing},
    {{"bailingmoe2", false, false}, &bailing},
    {{"llada-moe", false, false}, &bailing},
    {{"exaone-moe", false, false}, &exaone_moe},
    {{"jais-2", false, false}, &jais2},
    {{"tekken", true, true}, &tekken},
    {{"gpt-4o", false, false}, &gpt4o},
    {{"llama4", false, false}, &gpt4o},
    {{"kanana2", false, false}, &gpt4o},
    {{"talkie", false, false}, &gpt4o},
    {{"minimax-m2", false, false}, &gpt4o},
    {{"granite-embed-multi-97m", true, false}, &gpt4o},
    {{"tiny_aya", false, false}, &tiny_aya},
    {{"cohere2moe", false, false}, &tiny_aya},
    {{"youtu", true, false}, &youtu},
    {{"kimi-k2", false, false}, &kimi},
    {{"falcon", false, false}, &falcon},
    {{"bloom", false, false}, &bloom},
    {{"poro-chat", false, false}, &bloom},
    {{"gpt3-finnish", false, false}, &bloom},
    {{"viking", false, false}, &viking},
    {{"deepseek-llm", false, false}, &deepseek_llm},
    {{"deepseek-coder", false, false}, &deepseek_coder},
    {{"deepseek-v3", false, false}, &deepseek3},
    {{"hunyuan-dense", false, false}, &deepseek3},
    {{"joyai-llm", false, false}, &deepseek3},
    {{"afmoe", false, false}, &afmoe},
    {{"superbpe", false, false}, &superbpe},
    {{"chameleon", false, true}, &chameleon},
    {{"hy_v4", false, false}, &deepseek3},
    {{"spark2_5", false, false}, &spark},
    {{"ufakzeka", false, false}, &ufakzeka},
    {{"gemma4", false, true}, &gemma4},
    {{"granite-embed-multi-311m", false, true}, &gemma4},
    {{"sarvam-moe", false, false}, &lines},
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

static temper_status refuse(gguf_string name, error *err)
{
    strbuf known = {0};

    for (size_t i = 0; i < ROW_COUNT; i++)
        strbuf_printf(&known, "%s%s", i == 0 ? "" : ", ", rows[i].traits.name);
    if (name.data == NULL)
        error_set(err, TEMPER_UNSUPPORTED,
                  "tokenizer.ggml.pre is missing, so nothing says how this vocabulary splits "
                  "words; convert the model again with a converter that writes it. Known: %s",
                  strbuf_text(&known));
    else
        error_set(err, TEMPER_UNSUPPORTED,
                  "tokenizer.ggml.pre is \"%.*s\", which is not known. Known: %s",
                  (int)(name.length < 64 ? name.length : 64), name.data, strbuf_text(&known));
    strbuf_free(&known);
    return TEMPER_UNSUPPORTED;
}

static const row *find_row(gguf_string name)
{
    for (size_t i = 0; name.data != NULL && i < ROW_COUNT; i++) {
        const char *known = rows[i].traits.name;
        if (strlen(known) == name.length && memcmp(known, name.data, name.length) == 0)
            return &rows[i];
    }
    return NULL;
}

temper_status pretokenizer_open(gguf_string name, pretokenizer_traits *traits, splitter *out,
                                error *err)
{
    const row *found = find_row(name);
    temper_status status = TEMPER_OK;

    if (found == NULL)
        return refuse(name, err);
    *traits = (pretokenizer_traits){
        .whole_words = found->traits.whole_words,
        .whole_line_ends = found->family == &gemma4,
        .adds_bos = found->traits.adds_bos,
        .marked_spaces = found->family == &gemma4 || found->family == &lines,
    };
    for (int i = 0; i < PATTERNS_MAX && status == TEMPER_OK; i++) {
        const char *text = found->family->patterns[i];
        if (text == NULL)
            break;
        split_step *step = splitter_add(out, err);
        status = step == NULL ? TEMPER_UNSUPPORTED : pattern_open(text, &step->pattern, err);
    }
    return status;
}
