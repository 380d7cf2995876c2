#!/bin/sh
# The installed tree as its users meet it: moved, linked against, packaged.
#
#     tests/install/install.sh CASE
#
# Set by tests/CMakeLists.txt: BUILD and SOURCE, the folders; PARTS, that of the fetched parts;
# VERSION; LIBDIR, the library folder relative to the prefix; WEBGPU, the WebGPU library,
# WEBGPU_NAME, how it is called where it is installed, and WEBGPU_LICENSES, its texts; CC,
# PKG_CONFIG, CMAKE, CPACK, NM and READELF, the programs. The case `tree` installs and moves; all
# others look at what it leaves.
set -eu

CASE=$1
work=$BUILD/tests/install
root=$work/moved
lib=$root/$LIBDIR
model=$SOURCE/tests/golden/tiny/llama-f16.gguf
LC_ALL=C
export LC_ALL
unset LD_LIBRARY_PATH PKG_CONFIG_LIBDIR CMAKE_PREFIX_PATH

fail() {
    printf '%s: %s\n' "$CASE" "$*" >&2
    exit 1
}

# same WHAT WANT-FILE GOT-FILE
same() {
    diff "$2" "$3" || fail "$1: < is what should be, > is what is there"
}

# Prints the files of a tree, sorted, relative to it.
files_of() {
    (cd "$1" && find . ! -type d | sed 's,^\./,,' | sort)
}

# What an installation holds: runtime_files is the package temper, development_files libtemper-dev.
runtime_files() {
    # shellcheck disable=SC2086 # words are meant
    cat <<TEXT
bin/temper
$LIBDIR/libtemper.so.${VERSION%.*}
$LIBDIR/libtemper.so.$VERSION
$LIBDIR/temper/$WEBGPU_NAME
share/bash-completion/completions/temper
share/doc/temper/LICENSE
share/doc/temper/THIRD_PARTY.md
share/doc/temper/copyright
$(printf 'share/doc/temper/licenses/%s\n' $WEBGPU_LICENSES)
share/doc/temper/licenses/ggml.txt
share/doc/temper/licenses/huggingface-jinja.txt
share/doc/temper/licenses/quickjs-ng.txt
share/man/man1/temper.1
TEXT
}

development_files() {
    cat <<TEXT
include/temper/temper.h
$LIBDIR/cmake/temper/temper-config-version.cmake
$LIBDIR/cmake/temper/temper-config.cmake
$LIBDIR/libtemper.a
$LIBDIR/libtemper.so
$LIBDIR/pkgconfig/temper.pc
TEXT
}

# run_program PROGRAM: tells its version, tokenizes, and answers.
run_program() {
    [ "$("$1" --version)" = "temper $VERSION" ] || fail "$1 --version is not $VERSION"
    "$1" tokenize "$model" -p "Why?" >"$work/ids" || fail "$1 tokenize failed"
    grep -Eqx '[0-9]+( [0-9]+)*' "$work/ids" || fail "$1 tokenize printed: $(cat "$work/ids")"
    "$1" run "$model" -p "Why?" -n 4 --json >"$work/answer" || fail "$1 run failed"
    grep -q '"finish"' "$work/answer" || fail "$1 run printed: $(cat "$work/answer")"
}

# finds_webgpu BINARY FOLDER: the loader finds the WebGPU library in FOLDER.
finds_webgpu() {
    found=$(ldd "$1" | awk -v name="$WEBGPU_NAME" '$1 == name {print $3}')
    [ -n "$found" ] || fail "$1 does not find $WEBGPU_NAME"
    [ "$(readlink -f "$found")" = "$(readlink -f "$2/$WEBGPU_NAME")" ] ||
        fail "$1 finds $found, not the one in $2"
}

# build_ask OUT ARGUMENT...: doc/ask.c with a compiler's plain arguments.
build_ask() {
    out=$1
    shift
    "$CC" -std=c11 -Wall -Wextra -Wpedantic -Werror "$SOURCE/doc/ask.c" "$@" -o "$out" ||
        fail "cc ask.c $* failed"
}

# asks PROGRAM: it answers, and finds the WebGPU library of the moved tree.
asks() {
    finds_webgpu "$1" "$lib/temper"
    "$1" "$model" "Why?" >"$work/answer" || fail "$1 failed"
    [ -s "$work/answer" ] || fail "$1 answered nothing"
}

# ---- cases --------------------------------------------------------------------------------------

# Installs, moves, and compares the list of files.
tree() {
    rm -rf "$work"
    mkdir -p "$work"
    "$CMAKE" --install "$BUILD" --prefix "$work/first" >"$work/log" || fail "$(cat "$work/log")"
    mv "$work/first" "$root"
    { runtime_files && development_files; } | sort >"$work/want"
    files_of "$root" >"$work/got"
    same "installed files" "$work/want" "$work/got"
    # quickjs-ng.txt is made from its sources, so that it comes last and is looked at more closely.
    for file in $WEBGPU_LICENSES ggml.txt huggingface-jinja.txt quickjs-ng.txt; do
        text=$root/share/doc/temper/licenses/$file
        grep -q 'Copyright' "$text" || fail "$file names no holder"
        grep -qi 'without warrant\|AS IS' "$text" || fail "$file is no licence"
    done
    grep -q 'Fabrice Bellard' "$text" || fail "quickjs-ng.txt does not name its author"
    grep -q 'UNICODE LICENSE V3' "$text" || fail "quickjs-ng.txt lacks the licence of the tables"
    cmp "$lib/temper/$WEBGPU_NAME" "$WEBGPU" || fail "the WebGPU library was changed"
}

# Both libraries export the functions of temper.h and nothing else.
symbols() {
    tr '\n' ' ' <"$root/include/temper/temper.h" | grep -o 'TEMPER_API [^;(]*(' |
        sed -n 's/.*[ *]\(temper_[a-z0-9_]*\)($/\1/p' | sort >"$work/want"
    [ "$(wc -l <"$work/want")" -ge 30 ] || fail "found only few functions in temper.h"
    "$NM" -D --defined-only "$lib/libtemper.so" | awk '{print $3}' | sort >"$work/got"
    same "symbols of libtemper.so" "$work/want" "$work/got"
    "$NM" -g --defined-only "$lib/libtemper.a" | awk 'NF == 3 {print $3}' | sort >"$work/got"
    same "symbols of libtemper.a" "$work/want" "$work/got"
    "$READELF" -d "$lib/libtemper.so" | grep -qF "[libtemper.so.${VERSION%.*}]" ||
        fail "the soname is not libtemper.so.${VERSION%.*}"
    # They stand in nothing that links them, whatever its own names are.
    cat >"$work/clash.c" <<'TEXT'
#include <temper/temper.h>
int gguf_open(void);
int JS_NewContext(void);
int gguf_open(void) { return 1; }
int JS_NewContext(void) { return temper_version()[0]; }
int main(void) { return gguf_open() == JS_NewContext(); }
TEXT
    # shellcheck disable=SC2046 # words are meant
    "$CC" "$work/clash.c" $(PKG_CONFIG_PATH=$lib/pkgconfig "$PKG_CONFIG" --static \
        --define-variable=library=:libtemper.a --cflags --libs temper) -o "$work/clash" ||
        fail "names of the library and of a program met"
    "$work/clash" || fail "names of the library and of a program were mixed up"
}

# No file but the WebGPU library, which comes as it is, names a folder of this machine, and what is
# to be found is found by relative paths.
paths() {
    status=0
    for folder in "$SOURCE" "$BUILD" "$PARTS"; do
        name=$(printf '%s\n' "$folder" | sed 's/[]*.^$+?(){}|[]/\\&/g')
        # At the start of a path, or joined to an option; "lib/temper" is no folder "/temper".
        name="(^|-[IL]|[^A-Za-z0-9_.}/-])$name(/|[^A-Za-z0-9_.-]|\$)"
        (cd "$root" && grep -rlaE --exclude="$WEBGPU_NAME" -e "$name" .) >"$work/got" || true
        if [ -s "$work/got" ]; then
            printf '%s stands in\n%s\n' "$folder" "$(cat "$work/got")" >&2
            status=1
        fi
    done
    [ "$status" -eq 0 ] || fail "a folder of this machine is in what was installed"
    for binary in "$root/bin/temper" "$lib/libtemper.so"; do
        "$READELF" -d "$binary" | sed -n 's/.*R.*PATH).*\[\(.*\)\]/\1/p' >"$work/got"
        # shellcheck disable=SC2016 # the loader expands it
        grep -Eqx '\$ORIGIN(/[^:]*)?' "$work/got" || fail "$binary searches in $(cat "$work/got")"
        finds_webgpu "$binary" "$lib/temper"
    done
    if grep -n '^[a-z_]*=/' "$lib/pkgconfig/temper.pc"; then
        fail "temper.pc holds an absolute path"
    fi
}

# The program runs where it was moved to; the completion knows what --help knows.
program() {
    (cd / && run_program "$root/bin/temper")
    # shellcheck disable=SC2016 # for the inner shell
    bash -euc '
        PATH=$1/bin:$PATH
        source "$1/share/bash-completion/completions/temper"
        COMP_WORDS=(temper ru) COMP_CWORD=1
        _temper
        [[ ${COMPREPLY[*]} == run ]] || exit 1
        COMP_WORDS=(temper run model.gguf --tem) COMP_CWORD=3
        _temper
        [[ ${COMPREPLY[*]} == --temp ]] || exit 1
        COMP_WORDS=(temper eval next --id) COMP_CWORD=3
        _temper
        [[ ${COMPREPLY[*]} == --ids ]] || exit 1
        COMP_WORDS=(temper run --temp 0) COMP_CWORD=3
        _temper
        [[ ${#COMPREPLY[@]} == 0 ]]
    ' bash "$root" || fail "the completion of bash is wrong"
}

# pkg-config: shared, static where both are, static where only that is.
pkgconfig() {
    export PKG_CONFIG_PATH="$lib/pkgconfig"
    [ "$("$PKG_CONFIG" --modversion temper)" = "$VERSION" ] || fail "temper.pc has another version"
    # shellcheck disable=SC2046 # words are meant
    build_ask "$work/ask" $("$PKG_CONFIG" --cflags --libs temper) "-Wl,-rpath,$lib"
    asks "$work/ask"
    ldd "$work/ask" | grep -q 'libtemper\.so' || fail "the shared library was not linked"
    "$PKG_CONFIG" --libs temper | grep -q pcre2 &&
        fail "linking the shared library asks for what is private"

    # shellcheck disable=SC2046
    build_ask "$work/ask_static" $("$PKG_CONFIG" --static --define-variable=library=:libtemper.a \
        --cflags --libs temper)
    asks "$work/ask_static"
    if ldd "$work/ask_static" | grep -q 'libtemper\.so'; then fail "it is not static"; fi

    only=$work/only_static
    rm -rf "$only"
    mkdir -p "$only/$LIBDIR/pkgconfig"
    cp "$lib/pkgconfig/temper.pc" "$only/$LIBDIR/pkgconfig"
    ln -s "$root/include" "$only/include"
    ln -s "$lib/libtemper.a" "$lib/temper" "$only/$LIBDIR"
    export PKG_CONFIG_PATH="$only/$LIBDIR/pkgconfig"
    # shellcheck disable=SC2046
    build_ask "$work/ask_only_static" $("$PKG_CONFIG" --static --cflags --libs temper)
    asks "$work/ask_only_static"
}

# find_package: both libraries, the versions, and what is said when a part is missing.
cmake_package() {
    rm -rf "$work/consumer" "$work/consumer_poor"
    "$CMAKE" -S "$SOURCE/tests/install/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$root" \
        -DASK="$SOURCE/doc/ask.c" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    "$CMAKE" --build "$work/consumer" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    asks "$work/consumer/ask_shared"
    asks "$work/consumer/ask_static"
    ldd "$work/consumer/ask_shared" | grep -qF "$lib/libtemper.so.${VERSION%.*}" ||
        fail "ask_shared does not link the moved library"
    if ldd "$work/consumer/ask_static" | grep -q 'libtemper\.so'; then fail "it is not static"; fi

    "$CMAKE" -D temper_DIR="$lib/cmake/temper" -P "$SOURCE/tests/install/refused.cmake" ||
        fail "another version is not refused"
    if PKG_CONFIG_LIBDIR=/nonexistent "$CMAKE" -S "$SOURCE/tests/install/consumer" \
        -B "$work/consumer_poor" -DCMAKE_PREFIX_PATH="$root" -DASK="$SOURCE/doc/ask.c" \
        >"$work/log" 2>&1; then
        fail "the static library is found without its parts"
    fi
    tr -s ' \n' ' ' <"$work/log" | grep -q 'static library needs libpcre2-8' ||
        fail "the missing parts are not named: $(cat "$work/log")"
}

# The options of a help, or of a section of the man page, sorted.
help_options() {
    "$root/bin/temper" "$@" --help | sed -nE 's/^  (-[^ ]+).*/\1/p' | sort
}

page_options() {
    awk -v title=".SS temper $*" '/^\.S[SH] / { on = $0 == title } on' "$page" |
        sed -nE 's/^\\fB(\\-[^ ]*)\\fR.*/\1/p' | tr -d '\134' | sort
}

# The man page has the commands and options of --help, and no others.
man_page() {
    page=$root/share/man/man1/temper.1
    "$root/bin/temper" --help | sed -nE 's/^  ([a-z]+) .*/\1/p' >"$work/want"
    grep -c . "$work/want" >"$work/count"
    [ "$(cat "$work/count")" -ge 7 ] || fail "--help names only few commands"
    sed -nE 's/^\.SS temper ([a-z]+)$/\1/p' "$page" >"$work/got"
    same "commands of the man page" "$work/want" "$work/got"
    sed -n 's/^\.SS temper //p' "$page" >"$work/sections"
    while read -r section; do
        # shellcheck disable=SC2086 # "eval next" is two words
        help_options $section >"$work/want" </dev/null
        page_options "$section" >"$work/got"
        same "options of temper $section" "$work/want" "$work/got"
    done <"$work/sections"
    grep -q '^eval next$' "$work/sections" || fail "temper eval next has no section"
    [ "$(page_options run | wc -l)" -ge 10 ] || fail "temper run has only few options"
    grep -qF "temper $VERSION" "$page" || fail "the man page has another version"
    if grep -n '@[A-Z]*@' "$page"; then fail "the man page was not filled in"; fi
}

# It is formatted without complaints.
man_format() {
    command -v groff >/dev/null || exit 77
    groff -man -Tascii -P-cbou -ww "$root/share/man/man1/temper.1" >"$work/text" 2>"$work/log"
    if [ -s "$work/log" ]; then fail "$(cat "$work/log")"; fi
    grep -q 'EXIT STATUS' "$work/text" || fail "the man page is cut"
}

# field PACKAGE NAME
field() {
    dpkg-deb -f "$1" "$2"
}

# Debian's packages: fields, files, and the program in a test root. Nothing is installed.
deb() {
    command -v dpkg-shlibdeps >/dev/null || exit 77
    rm -rf "$work/deb"
    # gzip, because it is quick.
    "$CPACK" -G DEB --config "$BUILD/CPackConfig.cmake" -B "$work/deb" \
        -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip >"$work/log" 2>&1 || fail "$(cat "$work/log")"
    if grep -i 'warning' "$work/log"; then fail "cpack warns"; fi
    architecture=$(dpkg --print-architecture)
    runtime=$work/deb/temper_${VERSION}_$architecture.deb
    development=$work/deb/libtemper-dev_${VERSION}_$architecture.deb
    [ "$(field "$runtime" Package)" = temper ] || fail "Package of $runtime"
    [ "$(field "$development" Package)" = libtemper-dev ] || fail "Package of $development"
    for package in "$runtime" "$development"; do
        [ "$(field "$package" Version)" = "$VERSION" ] || fail "Version of $package"
        [ "$(field "$package" Architecture)" = "$architecture" ] || fail "Architecture of $package"
        [ -n "$(field "$package" Maintainer)" ] || fail "Maintainer of $package"
        dpkg-deb -c "$package" | awk '{print $2}' | sort -u >"$work/owners"
        [ "$(cat "$work/owners")" = root/root ] || fail "files of $package are not root's"
    done

    depends=", $(field "$runtime" Depends),"
    set -- libc6 libedit2 libjansson4 libpcre2-8-0 libgcc-s1 libvulkan1
    if "$READELF" -d "$WEBGPU" | grep -q 'libstdc++'; then set -- "$@" libstdc++6; fi
    for name in "$@"; do
        case $depends in
            *", $name "* | *", $name,"*) ;;
            *) fail "temper does not depend on $name:$depends" ;;
        esac
    done
    case $depends in
        *webgpu* | *temper*) fail "temper depends on what is in it:$depends" ;;
    esac
    field "$development" Depends | grep -qF "temper (= $VERSION)" || fail "libtemper-dev's Depends"
    dpkg-deb --ctrl-tarfile "$runtime" | tar -xO ./shlibs >"$work/shlibs" || fail "no shlibs file"
    grep -qx "libtemper ${VERSION%.*} temper (>= $VERSION)" "$work/shlibs" ||
        fail "shlibs is: $(cat "$work/shlibs")"

    dpkg -x "$runtime" "$work/deb/runtime"
    dpkg -x "$development" "$work/deb/development"
    runtime_files | sort >"$work/want"
    files_of "$work/deb/runtime/usr" >"$work/got"
    same "files of temper" "$work/want" "$work/got"
    development_files | sort >"$work/want"
    files_of "$work/deb/development/usr" >"$work/got"
    same "files of libtemper-dev" "$work/want" "$work/got"
    (cd / && run_program "$work/deb/runtime/usr/bin/temper")
    finds_webgpu "$work/deb/runtime/usr/bin/temper" "$work/deb/runtime/usr/$LIBDIR/temper"
}

case $CASE in
    tree | symbols | paths | program | pkgconfig | cmake_package | man_page | man_format | deb)
        "$CASE"
        ;;
    *) fail "there is no such case" ;;
esac
