#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# client/examples/dlpack.py, with each of numpy and torch that a Python here has: $KVC_PYTHON,
# python3, Debian's.
set -eu

if [ "${KVC_TRACE_LIGHT:-}" = 1 ]; then
    echo "SKIP: views in Python: it cannot load a library that was built with a sanitizer"
    exit 77
fi

# with PACKAGE: runs the test on the first Python that has it; 1: none has
with() {
    for python in ${KVC_PYTHON:-} python3 /usr/bin/python3; do
        if command -v "$python" >/dev/null && "$python" -c "import $1" >/dev/null 2>&1; then
            "$python" "$KVC_SOURCE_DIR/tests/e2e/dlpack.py" "$1" || exit 1
            return 0
        fi
    done
    return 1
}

ran=
with torch && ran=1 || echo "SKIP: views in PyTorch: no Python here has it (KVC_PYTHON names one)"
with numpy && ran=1 || echo "SKIP: views in NumPy: no Python here has it (Debian: python3-numpy)"
[ -n "$ran" ] || exit 77
