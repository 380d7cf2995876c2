#!/usr/bin/env bash
# Builds llama.cpp's llama-bench from what the npm package node-llama-cpp ships: the sources in its
# git bundle, the libraries of its prebuilt Vulkan build. It downloads nothing itself.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
# shellcheck source=tools/common.sh
source "$root/tools/common.sh"

usage() {
    cat <<'TEXT'
usage: tools/peer_build.sh NODE_MODULES OUT

NODE_MODULES is what `npm install --ignore-scripts node-llama-cpp@3.21.1` left; OUT becomes a folder
with llama-bench and the libraries beside it, to be given to tools/peer.sh --llama-bench
OUT/llama-bench, and to be copied to another machine as it is. Needs g++ and git.
TEXT
}

case ${1:-} in
    --help | -h)
        usage
        exit 0
        ;;
esac
(($# == 2)) || {
    usage >&2
    exit 2
}
bundle=$1/node-llama-cpp/llama/gitRelease.bundle
libraries=$1/@node-llama-cpp/linux-x64-vulkan/bins/linux-x64-vulkan
out=$2
[[ -r $bundle ]] || die "there is no $bundle" "npm install --ignore-scripts node-llama-cpp@3.21.1"
[[ -d $libraries ]] || die "there is no $libraries" "the package of the Vulkan build was left out"
command -v g++ >/dev/null || die "g++ is needed"
command -v git >/dev/null || die "git is needed"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet "$bundle" "$work/llama.cpp" 2>/dev/null || die "$bundle cannot be unpacked"
mkdir -p "$out"
cp "$libraries"/*.so "$out"
links=()
for library in libllama libggml libggml-base libllama-common; do
    # The Vulkan build's own name first: libllama.vulkan.v0.4.0.so.
    for file in "$out/$library".vulkan.*.so "$out/$library.so"; do
        [[ -e $file ]] || continue
        links+=("-l:$(basename "$file")")
        break
    done
done
source=$work/llama.cpp
bench=$source/tools/llama-bench
say "building llama-bench"
g++ -std=c++17 -O2 -DNDEBUG -I"$source/include" -I"$source/ggml/include" -I"$source/common" \
    -I"$source/vendor" -I"$bench" "$bench/llama-bench.cpp" "$bench/main.cpp" \
    -o "$out/llama-bench" -L"$out" "${links[@]}" "-Wl,-rpath,\$ORIGIN" >"$work/log" 2>&1 || {
    tail_of "$work/log"
    die "llama-bench was not built"
}
say "$out/llama-bench"
