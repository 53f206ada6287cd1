#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/simulate/policies.sh: on two small workloads, and with a stand-in whose default policy is the worst.
set -eu
script=$KVC_SOURCE_DIR/tools/simulate/policies.sh

fail() {
    echo "policies: $*" >&2
    cat out >&2
    exit 1
}

# go CODE ARGUMENT...
go() {
    expected=$1
    shift
    code=0
    sh "$script" "$@" >out 2>&1 || code=$?
    [ "$code" = "$expected" ] || fail "policies.sh $*: exit code $code, expected $expected"
}

says() {
    grep -q -- "$1" out || fail "it does not say '$1'"
}

go 0 --seeds 2 --first 7 --requests 800 --kinds loop,documents --all
says '^loop  *7 .*20%'
says '^documents  *8 .*50%'
says '^all  *24 '
says ' of 24 cases more than .01 below'
go 2 --frob
says "unknown argument '--frob'"
go 2 --seeds
says '--seeds needs a value'
go 5 --kinds tales
says '--kind tales'

mkdir -p bin
cat >bin/kvcachebench <<'EOF'
#!/bin/sh
[ "$1" = simulate ] || exit 0
for policy in default published-lru published-lfu-aging; do
    value=0.5
    [ $policy != default ] || value=0.4
    echo '{"bench":"simulate","case":{"policy":"'$policy'","capacity":"5%","capacity_blocks":9},"metric":"hit_ratio","value":'$value',"unit":"1"}'
done
EOF
chmod +x bin/kvcachebench
export KVC_BIN_DIR="$PWD/bin"
go 0 --seeds 1 --kinds x
says '^1 of 1 cases more than .01 below .* -0.1000'
says '^x  *1  *5%  *0.4000  *0.5000  *lru  *-0.1000'
go 1 --seeds 1 --kinds x --strict
go 1 --strict one.jsonl two.jsonl
says '^one.jsonl  *-  *5%  *0.4000  *0.5000  *lru  *-0.1000'
says '^2 of 2 cases more than .01 below'
