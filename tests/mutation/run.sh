#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Deliberate defects, one at a time, in a copy of the tree: each must make a test fail. --help, --table.
exec python3 "$(dirname -- "$0")/run.py" "$@"
