/* SPDX-License-Identifier: Apache-2.0 */
/* Files and --set that are wrong, and the exact text of what is said about each. */
#include "cases.h"
#include "scratch.h"

#define TENANT_B "principals:\n  - {name: m, uids: [1]}\n  - {name: n, uids: [2], tenant: b}\n"
#define SIZE_HINT \
    " (a size is a number and a unit, such as '64GiB', '1.5TiB', '512MB' or '4096'); for example "

static const struct bad {
    const char *text;
    const char *expected;
} bad_files[] = {
    /* values */
    {"host:\n  limit: 12abc\n",
     "x.yaml:2: host.limit: expected a size from 4MiB to 8TiB, or 'auto', got '12abc'" SIZE_HINT
     "'4MiB'\n"},
    {"host:\n  limit: 1MiB\n", "x.yaml:2: host.limit: expected a size from 4MiB to 8TiB, or "
                               "'auto', got '1MiB'; for example '4MiB'\n"},
    {"host:\n  limit: -4GiB\n",
     "x.yaml:2: host.limit: expected a size from 4MiB to 8TiB, or 'auto', got '-4GiB'" SIZE_HINT
     "'4MiB'\n"},
    {"host:\n  limit: 0\n", "x.yaml:2: host.limit: expected a size from 4MiB to 8TiB, or 'auto', "
                            "got '0'; for example '4MiB'\n"},
    {"host:\n  limit:\n",
     "x.yaml:2: host.limit: expected a size from 4MiB to 8TiB, or 'auto', got nothing\n"},
    {"host:\n  limit: [1, 2]\n",
     "x.yaml:2: host.limit: expected a size from 4MiB to 8TiB, or 'auto', got a list\n"},
    {"host:\n  limit: {a: [1, {b: c}]}\n  chunk: big\n",
     "x.yaml:2: host.limit: expected a size from 4MiB to 8TiB, or 'auto', got a section\nx.yaml:3: "
     "host.chunk: expected a size from 2MiB to 1GiB, or 'auto', got 'big'" SIZE_HINT "'2MiB'\n"},
    {"log:\n  level: loud\n  json: maybe\n",
     "x.yaml:2: log.level: expected one of 'debug', 'info', 'warn', 'error', got 'loud'; for "
     "example 'info'\nx.yaml:3: log.json: expected true or false, got 'maybe'; for example "
     "'false'\n"},
    {"drain:\n  timeout: 10\n",
     "x.yaml:2: drain.timeout: expected a duration from 0 to 10min, got '10' (a duration needs a "
     "unit: ns, us, ms, s, min, h or d, such as '250ms' or '2s'); for example '10s'\n"},
    {"limits:\n  sessions: 5000\n", "x.yaml:2: limits.sessions: expected a whole number from 1 to "
                                    "4096, got '5000'; for example '256'\n"},
    {"runtime_dir: run\n", "x.yaml:1: runtime_dir: expected an absolute path of at most 255 bytes, "
                           "got 'run' (it does not begin with '/'); for example '/run/kvcache'\n"},
    {"metrics: {listen: \"0.0.0.0:9464\"}\n",
     "x.yaml:1: metrics.listen: expected a path such as '/run/kvcache/metrics.sock' or a loopback "
     "address with a port such as '127.0.0.1:9464' or '[::1]:9464', got '0.0.0.0:9464': that is no "
     "loopback address, and others than this machine must not read these pages; for them put a "
     "proxy before it\n"},
    {"socket_mode: \"0888\"\n",
     "x.yaml:1: socket_mode: expected an octal mode that gives the owner read and write and nobody "
     "execute, got '0888'; for example '0660'\n"},
    {"socket_mode: \"0460\"\n",
     "x.yaml:1: socket_mode: expected an octal mode that gives the owner read and write and nobody "
     "execute, got '0460'; for example '0660'\n"},
    {"policy:\n  eviction: magic\n",
     "x.yaml:2: policy.eviction: expected one of 'default', 'density', 'lru', "
     "'s3fifo', 'arc', 'lru2', got 'magic'\n"},
    {"quotas:\n  - host: 1GiB\n", "x.yaml:2: quotas: expected a tenant in every quota\n"},
    {"quotas:\n  - {tenant: default, host: 1GiB, host_share: 2GiB}\n",
     "x.yaml:2: quotas: expected a share of at most its limit for tenant 'default'\n"},
    {"quotas:\n  - {tenant: chta, host: 1GiB}\nprincipals:\n  - {name: n, uids: [1], tenant: "
     "chat}\n",
     "x.yaml:2: quotas: expected a tenant that a principal has, got 'chta'; did you mean "
     "'chat'?\n"},
    {"quotas:\n  - {tenant: wholly, host: 1GiB}\n",
     "x.yaml:2: quotas: expected a tenant that a principal has, got 'wholly'; principals name "
     "their tenant\n"},
    {"host: {limit: 1GiB}\nquotas:\n  - {tenant: default, host_share: 600MiB}\n  - {tenant: "
     "default, sub: s, "
     "host_share: 500MiB}\n  - {tenant: b, host_share: 500MiB}\n" TENANT_B,
     "x.yaml:3: quotas: expected all host_share together to be at most host.limit, which is 1.00 "
     "GiB, got 1.07 GiB; lower some of them or raise host.limit\n"},
    {"nvme: {paths: /, limit: 8GiB}\nquotas:\n  - {tenant: default, nvme_share: 7GiB}\n  - "
     "{tenant: b, "
     "nvme_share: 1MiB}\n" TENANT_B,
     "x.yaml:3: quotas: expected all nvme_share together to be at most seven eighths of "
     "nvme.limit, "
     "which is 7.00 GiB, got 7.00 GiB; lower some of them or raise nvme.limit\n"},
    {"quotas:\n  - {tenant: default, host: 1GiB}\n  - {tenant: default, nvme: 1GiB}\n",
     "x.yaml:3: quotas: tenant 'default' has two quotas, the first in line 2\n"},
    {"quotas: 7\n",
     "x.yaml:1: quotas: expected a list with one '- tenant: ...' per quota, got a single value\n"},
    {"hbm: {devices: \"gpu0\"}\n", "x.yaml:1: hbm.devices: gpu0: a device is GPU-<uuid> or "
                                   "MIG-<uuid> as 'nvidia-smi -L' prints it, "
                                   "cuda:<number>, or emu:<number> for an emulated one\n"},
    {"hbm:\n  devices: emu:0=\n",
     "x.yaml:2: hbm.devices: expected a size behind 'emu:0=', got '': a size is missing; for "
     "example 'emu:0=20GiB'\n"},
    {"hbm:\n  devices: emu:0=lots\n",
     "x.yaml:2: hbm.devices: expected a size behind 'emu:0=', got 'lots': a size is a number and a "
     "unit, such as '64GiB', '1.5TiB', '512MB' or '4096'; for example 'emu:0=20GiB'\n"},
    {"hbm:\n  devices: emu:0,\n",
     "x.yaml:2: hbm.devices: expected devices separated by commas, got "
     "''; for example 'cuda:0=20GiB'\n"},
    {"hbm:\n  devices: emu:0, emu:0=1GiB\n",
     "x.yaml:2: hbm.devices: 'emu:0' is given twice (as 'emu:0'); leave one of them away\n"},
    {"hbm:\n  devices: emu:0=64MiB, emu:00=64MiB\n",
     "x.yaml:2: hbm.devices: 'emu:00' is given twice (as 'emu:0'); leave one of them away\n"},
    {"hbm:\n  devices: emu:0=4MiB\n", "x.yaml:2: hbm.devices: emu:0: a device's limit must be 0 "
                                      "(no blocks there) or 8MiB to 8TiB\n"},
    {"hbm:\n  devices: emu:0=2GiB\n",
     "x.yaml:2: hbm.devices: emu:0: expected at most the memory of an emulated device, got more; "
     "raise hbm.emu_memory\n"},
    {"hbm:\n  chunk: 8MiB\n  devices: emu:0=8MiB\n",
     "x.yaml:3: hbm.devices: emu:0: a device's chunk must be at most half of its limit\n"},
    {"hbm:\n  eviction: magic\n", "x.yaml:2: hbm.eviction: expected one of 'default', 'density', "
                                  "'lru', 's3fifo', 'arc', 'lru2', got 'magic'\n"},
    {"flight:\n  records: 100\n",
     "x.yaml:2: flight.records: expected a power of two, got 100; for example '4096'\n"},
    {"secret_file: \"/tmp/a\\nb\"\n",
     "x.yaml:1: secret_file: expected an absolute path of at most 255 bytes, got '/tmp/a?b' (it "
     "has a control character); for example '/run/kvcache'\n"},
    {"secret_file: \"/tmp/a\\0b\"\n", "x.yaml:1: secret_file: expected an absolute path of at most "
                                      "255 bytes, got text with a NUL byte\n"},
    /* keys */
    {"host:\n  limt: 64GiB\n", "x.yaml:2: no option 'host.limt'; the nearest is 'host.limit'\n"},
    {"hots:\n  limit: 64GiB\nlog: {level: info}\n",
     "x.yaml:1: no option 'hots'; the nearest is 'host'\n"},
    {"principal:\n  - a\n", "x.yaml:1: no option 'principal'; the nearest is 'principals'\n"},
    {"# a comment\n\nhost:\n  limit: 4GiB\n\n  limit: 5GiB\n",
     "x.yaml:6: host.limit: given twice, first in line 4\n"},
    {"host: {limit: 4GiB}\nlog: {}\nhost: {chunk: 2MiB}\n",
     "x.yaml:3: host: given twice, first in line 1\n"},
    {"host: {limit: 4GiB}\nhost.limit: 5GiB\n",
     "x.yaml:2: host.limit: given twice, first in line 1\n"},
    {"host: 64GiB\n", "x.yaml:1: host: expected a section with keys indented below it, such as "
                      "'limit: auto', got a single value\n"},
    {"host: [limit]\n", "x.yaml:1: host: expected a section with keys indented below it, such as "
                        "'limit: auto', got a list\n"},
    {"[a, b]: c\nlog: {level: info}\n", "x.yaml:1: expected a key, got a list\n"},
    /* combinations */
    {"host:\n  limit: 64MiB\n  chunk: 128MiB\n",
     "x.yaml:3: host.chunk: expected at most host.limit, which is 64MiB, got 128MiB; lower the one "
     "or raise the other\n"},
    {"host: {limit: 64MiB}\nlimits:\n  lease_bytes: 65MiB\n",
     "x.yaml:3: limits.lease_bytes: expected at most host.limit, which is 64MiB, got 65MiB; lower "
     "the one or raise the other\n"},
    {"staging:\n  total: 1GiB\n  session_max: 2GiB\n",
     "x.yaml:3: staging.session_max: expected at most staging.total, which is 1GiB, got 2GiB; "
     "lower the one or raise the other\n"},
    {"memory: {budget: 1GiB}\nhost: {limit: 2GiB}\n",
     "x.yaml:2: host.limit: expected at most memory.budget, which is 1GiB, got 2GiB; lower the one "
     "or raise the other\n"},
    {"host:\n  limit: 1TiB\n  chunk: 2MiB\n",
     "x.yaml:3: host.chunk: expected at most 16384 chunks, each of which takes two descriptors, "
     "got 524288 of 2MiB; raise it\n"},
    {"host: {chunk: 3MiB}\n",
     "x.yaml:1: host.chunk: expected a multiple of 2MiB, got 3MiB; for example '64MiB'\n"},
    {"socket_mode: \"0600\"\nprincipals: [{name: a, uids: [12345678]}]\n",
     "x.yaml:1: socket_mode: 0600 lets nobody but the daemon's uid connect, but principal 'a' has "
     "uid 12345678; for example '0660' and that uid in the daemon's group\n"},
    {"nvme: {limit: 64MiB}\n", "x.yaml:1: nvme.limit: expected nvme.paths with it, for without "
                               "storage nothing is written, got "
                               "64MiB alone; set nvme.paths too, or leave nvme.limit out\n"},
    {"nvme: {paths: /, limit: 64MiB,\n  segment: 16MiB}\n",
     "x.yaml:1: nvme.limit: expected at least 8 segments of nvme.segment, which is 16MiB, got "
     "64MiB; lower the one or raise the other\n"},
    {"nvme:\n  segment: 1048577\n",
     "x.yaml:2: nvme.segment: expected a multiple of 4KiB, got 1048577; for example '1MiB'\n"},
    {"nvme:\n  segment: 2MB\n",
     "x.yaml:2: nvme.segment: expected a multiple of 4KiB, got 2000000; for example '1952KiB'\n"},
    {"nvme:\n  paths: /tmp, /usr\n  segment: 1MiB\n  limit: 8MiB\n",
     "x.yaml:4: nvme.limit: expected for each of the 2 paths of nvme.paths at least 4 segments of "
     "nvme.segment, which is 1MiB, and 16KiB, so 9MiB together, got 8MiB; raise it, or lower "
     "nvme.segment\n"},
    {"hbm:\n  emu_bandwidth: 1\n", "x.yaml:2: hbm.emu_bandwidth: expected 0 or at least 16MiB, got "
                                   "1; for example '1GiB'\n"},
    {"hbm:\n  emu_bandwidth: 16777215\n",
     "x.yaml:2: hbm.emu_bandwidth: expected 0 or at least 16MiB, got 16777215; for example "
     "'1GiB'\n"},
    {"hbm:\n  emu_latency: 1001ms\n",
     "x.yaml:2: hbm.emu_latency: expected a duration from 0 to 1s, "
     "got '1001ms'; for example '0s'\n"},
    {"limits:\n  namespaces: 65536\n",
     "x.yaml:2: limits.namespaces: expected a whole number from 1 to 65535, got '65536'; for "
     "example '1024'\n"},
    {"nvme:\n  writes_per_day: 1TiB\n  endurance: 0.8\n",
     "x.yaml:3: nvme.endurance: expected one of nvme.writes_per_day and nvme.endurance, got both; "
     "leave one of them 0\n"},
    {"nvme:\n  endurance: half\n",
     "x.yaml:2: nvme.endurance: expected a number of drive writes per day from 0 to 1000, got "
     "'half'; for example '0.8'\n"},
    {"nvme:\n  endurance: 1e2\n",
     "x.yaml:2: nvme.endurance: expected a number of drive writes per day from 0 to 1000, got "
     "'1e2'; for example '0.8'\n"},
    {"nvme:\n  paths: [/tmp, /var]\n", "x.yaml:2: nvme.paths: expected one text with commas in it, "
                                       "such as 'paths: a, b', got a list\n"},
    {"\x1f\x8b\x08",
     "x.yaml:1: expected YAML, got an error: control characters are not allowed; it is "
     "compressed by gzip: unpack it first (gunzip)\n"},
    {"GGUF\x03\n",
     "x.yaml:1: expected YAML, got an error: control characters are not allowed; it is "
     "a GGUF file, a model's weights: give the model's config.json, or for a "
     "document what 'kvcachectl doc export' wrote\n"},
    {"key,value\nhost.limit,1GiB\n", "x.yaml:1: expected keys and values such as 'runtime_dir: "
                                     "/run/kvcache', got a single value; it "
                                     "is lines of values with commas, CSV\n"},
    {"nvme:\n  paths: data\n", "x.yaml:2: nvme.paths: expected absolute paths, got 'data'; for "
                               "example '/mnt/nvme0'\n"},
    {"nvme:\n  paths: /tmp\n  replaced: /tmp/, /var\n",
     "x.yaml:3: nvme.replaced: expected paths that nvme.paths names, got '/var'\n"},
    {"nvme:\n  replaced: /tmp\n",
     "x.yaml:2: nvme.replaced: expected nothing where nvme.paths is empty, got '/tmp'\n"},
    {"nvme:\n  paths: /tmp,\n", "x.yaml:2: nvme.paths: expected a path before and behind each "
                                "comma, got an empty one\n"},
    {"nvme:\n  paths: /tmp, /tmp/\n", "x.yaml:2: nvme.paths: expected each path once, got '/tmp' "
                                      "and '/tmp', which is the same\n"},
    {"nvme:\n  paths: /tmp,/usr/../tmp\n",
     "x.yaml:2: nvme.paths: expected each path once, got '/tmp' and '/usr/../tmp', which is the "
     "same\n"},
    {"nvme:\n  paths: /dev/null\n", "x.yaml:2: nvme.paths: expected a directory, a file or a block "
                                    "device, got /dev/null: it is none of these\n"},
    {"host:\n  persist: maybe\n",
     "x.yaml:2: host.persist: expected 'off', 'systemd' or a directory, got 'maybe'; for example "
     "'/dev/shm/kvcache'\n"},
    /* YAML */
    {"host:\n\tlimit: 4GiB\n",
     "x.yaml:2: expected YAML, got an error: found character that cannot start any token (while "
     "scanning for the next token); indent with spaces, not tabs, and put quotes around text that "
     "begins with a special character\n"},
    {"host:\n  limit: 'abc\n", "x.yaml:3: expected YAML, got an error: found unexpected end of "
                               "stream (while scanning a quoted scalar)\n"},
    {"host: {limit: 4GiB\nlog: {}\n",
     "x.yaml:1: host.limit: expected a size from 4MiB to 8TiB, or 'auto', got '4GiB log'" SIZE_HINT
     "'4MiB'\nx.yaml:2: expected YAML, got an error: did not find expected ',' or '}' (while "
     "parsing a flow mapping)\n"},
    {"a: b: c\n", "x.yaml:1: no option 'a'; --help lists them all\nx.yaml:1: expected YAML, got an "
                  "error: mapping values are not allowed in this context\n"},
    {"log: {}\nhost: *nowhere\n", "x.yaml:2: host: expected a section with keys indented below it, "
                                  "such as 'limit: auto', got an alias\n"},
    {"x: &x 4GiB\nhost: {limit: *x}\n",
     "x.yaml:1: no option 'x'; --help lists them all\nx.yaml:2: host.limit: expected a size from "
     "4MiB to 8TiB, or 'auto', got an alias\n"},
    {"host: {limit: !size 4GiB}\n", "x.yaml:1: host.limit: expected a size from 4MiB to 8TiB, or "
                                    "'auto', got the tag '!size', which has no meaning here\n"},
    {"host: !section {limit: 4GiB}\n", "x.yaml:1: host: expected a section with keys indented "
                                       "below it, such as 'limit: auto', got the tag '!section', "
                                       "which has no meaning here\n"},
    {"log: {}\n---\nlog: {}\n", "x.yaml:2: expected one YAML document, got a second; remove the "
                                "line '---' or '...' before it\n"},
    {"just text\n", "x.yaml:1: expected keys and values such as 'runtime_dir: /run/kvcache', got a "
                    "single value\n"},
    {"- a\n- b\n",
     "x.yaml:1: expected keys and values such as 'runtime_dir: /run/kvcache', got a list\n"},
    {"log:\n  level: info\n# \xff\xfe\n", "x.yaml:3: expected YAML, got an error: invalid leading "
                                          "UTF-8 octet; the file must be UTF-8 text\n"},
    {"\xff\xfeh\n", "x.yaml:1: expected YAML, got an error: invalid leading UTF-8 octet; it is "
                    "UTF-16: save it as UTF-8\n"},
    {"log:\n  level: \"a\x01\"\n", "x.yaml:2: expected YAML, got an error: control characters are "
                                   "not allowed; the file must be UTF-8 text\n"},
    /* principals */
    {"principals:\n  - name: a\n",
     "x.yaml:2: principals: expected the uids of every principal; for example 'uids: [1000]'\n"},
    {"principals:\n  - uids: [1]\n",
     "x.yaml:2: principals: expected a name in every principal; for example 'name: vllm'\n"},
    {"principals:\n  - name: \"\"\n    uids: [1]\n",
     "x.yaml:2: principals.name: expected a name of letters, digits, '.', '_' and '-', got ''; for "
     "example 'vllm-1'\n"},
    {"principals:\n  - name: a b\n    uids: [1]\n",
     "x.yaml:2: principals.name: expected a name of letters, digits, '.', '_' and '-', got 'a b'; "
     "for example 'vllm-1'\n"},
    {"principals:\n  - name: a\n    uids: [alice]\n",
     "x.yaml:3: principals.uids: expected a numeric uid from 0 to 4294967294, got 'alice'; 'id -u "
     "NAME' tells it\n"},
    {"principals:\n  - name: a\n    uids: [-1]\n",
     "x.yaml:3: principals.uids: expected a numeric uid from 0 to 4294967294, got '-1'; 'id -u "
     "NAME' tells it\n"},
    {"principals:\n  - name: a\n    uids: [4294967295]\n",
     "x.yaml:3: principals.uids: expected a numeric uid from 0 to 4294967294, got '4294967295'; "
     "'id -u NAME' tells it\n"},
    {"principals:\n  - name: a\n    uids: [[1]]\n",
     "x.yaml:3: principals.uids: expected a numeric uid, got a list\n"},
    {"principals:\n  - name: a\n    uids: 1000\n",
     "x.yaml:3: principals.uids: expected a list of numeric uids such as [1000, 1001], got a "
     "single value\n"},
    {"principals:\n  - name: a\n    uids: []\n",
     "x.yaml:3: principals.uids: expected at least one uid, got an empty list\n"},
    {"principals:\n  - name: a\n    uids: [1, 2, 1]\n",
     "x.yaml:3: principals.uids: uid 1 is listed twice\n"},
    {"principals:\n  - name: a\n    uids: [1]\n  - name: b\n    uids: [2, 1]\n",
     "x.yaml:5: principals.uids: uid 1 is in principal 'a' (line 2) already; a uid belongs to one "
     "principal\n"},
    {"principals:\n  - name: a\n    uids: [1]\n  - name: a\n    uids: [2]\n",
     "x.yaml:4: principals.name: 'a' is the name of two principals, first in line 2\n"},
    {"principals:\n  - name: a\n    uids: [1]\n    admin: perhaps\n",
     "x.yaml:4: principals.admin: expected true or false, got 'perhaps'; for example 'false'\n"},
    {"principals:\n  - name: a\n    uids: [1]\n    admin: [true]\n",
     "x.yaml:4: principals.admin: expected true or false, got a list\n"},
    {"principals:\n  - name: a\n    name: b\n    uids: [1]\n",
     "x.yaml:3: principals: 'name' is given twice, first in line 2\n"},
    {"principals:\n  - name: a\n    uid: [1]\n    uids: [2]\n",
     "x.yaml:3: principals: no option 'uid'; the nearest is 'uids'\n"},
    {"principals:\n  - name: a\n    tenant: \"x y\"\n    uids: [1]\n",
     "x.yaml:3: principals.tenant: expected a name of letters, digits, '.', '_' and '-', got 'x "
     "y'; for example 'vllm-1'\n"},
    {"principals: []\n",
     "x.yaml:1: principals: expected at least one principal, got an empty list, with which nobody "
     "could attach; leave the key out to serve the daemon's own uid\n"},
    {"principals: {a: b}\n",
     "x.yaml:1: principals: expected a list with one '- name: ...' per principal, got a section\n"},
    {"principals:\n  - just text\n", "x.yaml:2: principals: expected a principal such as {name: "
                                     "vllm, uids: [1000]}, got a single value\n"},
    {"principals:\n  - {name: a, uids: [1]}\nprincipals:\n  - {name: b, uids: [2]}\n",
     "x.yaml:3: principals: given twice, first in line 1\n"},
    {"principals:\n  - {name: a, uids: [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}\n",
     "x.yaml:2: principals.uids: expected at most 16 uids in one principal\n"},
};

CASES(.setup = scratch_setup, .teardown = scratch_teardown);

CASE_EACH(a_bad_file_is_refused_with_what_would_be_right, ARRAY_LEN(bad_files))
{
    static struct config cfg;
    char errors[4096];

    ck_assert_int_eq(scratch_load(bad_files[_i].text, &cfg, errors, sizeof(errors)), -EINVAL);
    ck_assert_str_eq(errors, bad_files[_i].expected);
}

static const char *set_error(const char *set)
{
    static char text[1024];
    static struct config cfg;
    const char *sets[] = {scratch_runtime, set};
    struct config_errors errors;

    ck_assert_int_eq(config_load(NULL, sets, 2, &cfg, &errors), -EINVAL);
    ck_assert_uint_eq(errors.count, 1);
    return config_error_format(&errors.list[0], text, sizeof(text));
}

static const struct bad bad_sets[] = {
    {"host.limit", "--set: expected KEY=VALUE, got 'host.limit'; for example 'host.limit=64GiB'"},
    {"=4GiB", "--set: expected KEY=VALUE, got '=4GiB'; for example 'host.limit=64GiB'"},
    {"host.limit=12abc",
     "--set: host.limit: expected a size from 4MiB to 8TiB, or 'auto', got '12abc'" SIZE_HINT
     "'4MiB'"},
    {"host.limt=4GiB", "--set: no option 'host.limt'; the nearest is 'host.limit'"},
    {"host=4GiB", "--set: no option 'host'; the nearest is 'host.limit'"},
    {"principals=root",
     "--set: principals: a list has no place on the command line; give it in the file (--config)"},
    {"secret_file=/tmp/\xff", "--set: secret_file: expected text in UTF-8, got '/tmp/\xff'"},
    {"host.chunk=3MiB",
     "--set: host.chunk: expected a multiple of 2MiB, got 3MiB; for example '64MiB'"},
    {"staging.session_max=",
     "--set: staging.session_max: expected a size from 64KiB to 64TiB, or 'auto', got ''" SIZE_HINT
     "'64KiB'"},
};

CASE_EACH(a_bad_set_says_set_instead_of_a_line, ARRAY_LEN(bad_sets))
{
    ck_assert_str_eq(set_error(bad_sets[_i].text), bad_sets[_i].expected);
}

CASE(all_errors_are_told_up_to_ten)
{
    static struct config cfg;
    char text[2048] = "", errors[8192];
    unsigned lines = 0;

    for (unsigned i = 0; i < 13; i++)
        (void)!snprintf(text + strlen(text), sizeof(text) - strlen(text), "nothing%u: 1\n", i);
    ck_assert_int_eq(scratch_load(text, &cfg, errors, sizeof(errors)), -EINVAL);
    for (const char *c = errors; (c = strchr(c, '\n')) != NULL; c++)
        lines++;

    ck_assert_uint_eq(lines, CONFIG_ERRORS_MAX + 1);
    ck_assert_ptr_nonnull(strstr(errors, "x.yaml:10: no option 'nothing9'"));
    ck_assert_ptr_null(strstr(errors, "nothing10"));
    ck_assert_str_eq(strstr(errors, "and "), "and 3 more\n");
}

CASE(a_refused_configuration_leaves_the_result_alone)
{
    static struct config cfg, before;
    char errors[1024];

    memset(&cfg, 0x5a, sizeof(cfg));
    before = cfg;
    ck_assert_int_eq(scratch_load("host: {limit: no}\n", &cfg, errors, sizeof(errors)), -EINVAL);

    ck_assert_mem_eq(&cfg, &before, sizeof(cfg));
}

CASE(an_accepted_configuration_leaves_the_errors_alone)
{
    static struct config cfg;
    struct config_errors errors = {.count = 77};
    const char *sets[] = {scratch_runtime};

    ck_assert_int_eq(config_load(NULL, sets, 1, &cfg, &errors), 0);

    ck_assert_uint_eq(errors.count, 77);
}

CASE_EACH(deep_nesting_is_an_error_and_no_stack_overflow, 2)
{
    static struct config cfg;
    static char text[200001];
    char errors[8192];

    memset(text, _i == 0 ? '[' : '{', sizeof(text) - 1);
    memcpy(text, "host: ", 6);
    ck_assert_int_eq(scratch_load(text, &cfg, errors, sizeof(errors)), -EINVAL);
}

/* Whatever the bytes: accepted or refused, never a crash or a leak. */
CASE(changed_bytes_never_crash)
{
    static const char base[] = "host:\n  limit: 4GiB\nlog: {level: info}\nprincipals:\n"
                               "  - name: a\n    uids: [1, 2]\n    admin: true\n";
    static const char odd[] = "\t\n:-[]{}#&*!|>'\"%@`\\ \xff\x80\xc3,?";
    static struct config cfg;
    char text[sizeof(base)], errors[8192];
    unsigned state = 12345;

    for (unsigned round = 0; round < 1000; round++) {
        memcpy(text, base, sizeof(base));
        for (unsigned i = 0; i < 1 + round % 4; i++) {
            state = state * 1664525u + 1013904223u;
            text[(state >> 8) % (sizeof(base) - 1)] = odd[(state >> 20) % (sizeof(odd) - 1)];
        }
        const int r = scratch_load(text, &cfg, errors, sizeof(errors));
        ck_assert_msg((r == 0) == (errors[0] == '\0'), "%s\n%s", text, errors);
    }
}
