#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the virtual environment in which the package is built and tested, or brings it up to date.
#
#   venv.sh DIR    $PYTHON: which Python (default python3); packages come from PyPI
set -eu

dir=${1:?usage: venv.sh DIR}
wanted=$(dirname -- "$0")/requirements.txt
if cmp -s "$wanted" "$dir/requirements.txt"; then
    exit 0
fi
"${PYTHON:-python3}" -m venv "$dir"
"$dir/bin/python" -m pip install -q --disable-pip-version-check -r "$wanted"
cp "$wanted" "$dir/requirements.txt"
