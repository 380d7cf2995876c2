#!/bin/sh
# Plants violations in a temporary copy of the tree: tools/check_law.sh and tools/check_style.sh
# must find every one, and nothing where none is.
#
#     tests/tools/planted.sh ROOT
set -eu

root=$1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failed=0

cp -R "$root/src" "$root/include" "$copy"
mkdir -p "$copy/apps/cli" "$copy/tools"

# expect SCRIPT FOUND|QUIET FILE TEXT: writes TEXT (printf format) to FILE and looks for a complaint
# about it.
expect() {
    mkdir -p "$(dirname "$copy/$3")"
    # The text is a format on purpose: its escapes are lines and tabs.
    # shellcheck disable=SC2059
    printf "$4" >"$copy/$3"
    status=0
    found=QUIET
    "$root/tools/$1" "$copy" >"$copy/report" 2>&1 || status=$?
    if grep -q "^$3:" "$copy/report"; then found=FOUND; fi
    if [ "$found" != "$2" ] || { [ "$found" = FOUND ] && [ "$status" -ne 1 ]; }; then
        echo "$1: expected $2 for $3 with: $4"
        failed=1
    fi
    rm "$copy/$3"
}

law() { expect check_law.sh "$@"; }
style() { expect check_style.sh "$@"; }

law QUIET src/base/planted.c '#include "base/error.h"\n#include "temper/temper.h"\n'
law FOUND src/base/planted.c '#include "gpu/gpu.h"\n'
law FOUND src/base/planted.h '  #  include "file/gguf.h"\n'
law FOUND src/file/planted.c '#include "text/chat.h"\n'
law FOUND src/text/planted.c '#include "gpu/gpu.h"\n'
law FOUND src/gpu/planted.c '#include "op/op.h"\n'
law QUIET src/gpu/planted.c '#include <webgpu/webgpu.h>\n'
law FOUND src/op/planted.c '#include <webgpu/webgpu.h>\n'
law FOUND src/op/planted.c '#include "webgpu.h"\n'
law QUIET src/gpu/planted.c '#include <wgpu.h>\n'
law FOUND src/infer/planted.c '#include <wgpu.h>\n'
law FOUND src/op/planted.c '#include "model/model.h"\n'
law FOUND src/model/planted.c '#include "infer/infer.h"\n'
law FOUND src/infer/planted.c '#include "train/train.h"\n'
law FOUND src/infer/planted.c '#include "ref/ref.h"\n'
law FOUND src/infer/planted.c '#include <temper/temper_train.h>\n'
law FOUND src/ref/planted.c '#include "op/op.h"\n'
law QUIET src/check/planted.c '#include "ref/ref.h"\n#include <math.h>\n'
law FOUND src/check/planted.c '#include "infer/infer.h"\n'
law FOUND src/base/planted.c '#include "../gpu/gpu.h"\n'
law FOUND src/gpu/planted.c '#include "gpu.h"\n'
law FOUND src/newroom/planted.c 'int x;\n'
law FOUND apps/cli/planted.c '#include "infer/infer.h"\n'
law QUIET apps/cli/planted.c '#include "cli.h"\n#include "temper/temper.h"\n'
law FOUND include/temper/planted.h '#include "base/error.h"\n'

hundred=$(printf '%0100d' 0)
style QUIET src/base/planted.c "$hundred\n"
style FOUND src/base/planted.c "${hundred}1\n"
style QUIET src/base/planted.c "$(printf '%099d' 0)\303\251\n"
style FOUND src/kernels/planted.wgsl "$hundred\303\251\n"
style FOUND src/base/planted.h 'int a;\tint b;\n'
style FOUND src/base/planted.c 'int a; \n'
style FOUND src/base/planted.c '// TO''DO later\n'
style FOUND src/base/planted.c '/* FIX''ME */\n'
style QUIET src/base/planted.c 'int TO''DOS, x_TO''DO;\n'
style FOUND src/base/planted.c '#if 0\n#endif\n'
style QUIET src/base/planted.c '#if 0 < 1\n#endif\n'
style FOUND tools/planted '#!/bin/sh\n\techo\n'
style QUIET tools/planted.txt '\tdata\n'
style FOUND src/base/planted.c "$(yes '' | head -n 1001 | tr '\n' 'x' | sed 's/x/int;\\n/g')"
style QUIET src/base/planted.c "$(yes '' | head -n 1000 | tr '\n' 'x' | sed 's/x/int;\\n/g')"

exit $failed
