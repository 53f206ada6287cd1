/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: built-in defaults, then one YAML file, then --set, checked as a whole.
 *
 * One table (config_table) says for each key its type, default, limits and help; the file, --set,
 * --print-config and --help all go through it. Sizes are bytes, durations nanoseconds. A number
 * that is 0 where the table allows "auto" is not decided yet: config_resolve_auto() of budget.h
 * decides it.
 *
 * Runs before any other thread exists. Allocates only inside libyaml and gives all of it back.
 */
#ifndef KVC_CONFIG_H
#define KVC_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "err.h"
#include "hbm_devices.h"
#include "option.h"

#define CONFIG_PRINCIPALS_MAX 16u
#define CONFIG_UIDS_MAX       16u
#define CONFIG_QUOTAS_MAX     64u
#define CONFIG_KEYS_MAX       64u
#define CONFIG_PATH_BYTES     256u
#define CONFIG_LIST_BYTES     1024u
#define CONFIG_NAME_BYTES     64u
#define CONFIG_ERRORS_MAX     10u
#define CONFIG_FILE_BYTES_MAX (1u << 20)
#define CONFIG_BYTES_MAX      (UINT64_C(1) << 46) /* of any size, so that sums cannot overflow */
/* Suffices with policy.eviction lru and all other keys at their least. */
#define CONFIG_BUDGET_MIN      (UINT64_C(280) << 20)
#define CONFIG_HOST_LIMIT_MAX  (UINT64_C(1) << 43)
#define CONFIG_CHUNKS_MAX      16384u /* each takes two descriptors */
#define CONFIG_ERROR_TEXT_MAX  640u
#define CONFIG_AUTO_TEXT_BYTES 64u

/* The values that choices of the table stand for. loop.backend and log.level have the order of enum
 * loop_backend and enum log_level. */
enum config_huge_pages { CONFIG_HUGE_OFF, CONFIG_HUGE_TRY, CONFIG_HUGE_REQUIRE };
enum config_numa { CONFIG_NUMA_AUTO, CONFIG_NUMA_OFF };

/* Who may attach: processes of these uids share blocks with each other and with nobody else. */
struct config_principal {
    char name[CONFIG_NAME_BYTES];
    char tenant[CONFIG_NAME_BYTES];
    uid_t uids[CONFIG_UIDS_MAX];
    unsigned nuids;
    bool gateway;  /* may name a sub-tenant per request */
    bool admin;    /* may use stats, explain and evict beyond its own blocks */
    unsigned line; /* in the file; 0: the default principal */
};

/* What a tenant, or one of its sub-tenants, may hold and is guaranteed. Bytes. */
struct config_quota {
    char tenant[CONFIG_NAME_BYTES];
    char sub[CONFIG_NAME_BYTES]; /* empty: all of the tenant */
    uint64_t host, nvme;         /* limits; UINT64_MAX: none */
    uint64_t host_share, nvme_share;
    unsigned line;
};

/* Where the value of a key came from. */
struct config_origin {
    enum { CONFIG_FROM_DEFAULT, CONFIG_FROM_FILE, CONFIG_FROM_SET } from;
    unsigned line;                          /* of the file, with CONFIG_FROM_FILE */
    char auto_text[CONFIG_AUTO_TEXT_BYTES]; /* how "auto" was decided; empty: the value was given */
};

/* What config_load() was given; borrowed. */
struct config_given {
    const char *path;
    const char *const *sets;
    unsigned nsets;
};

/* A section of the file is a struct of the same name, and a key its member: the key nvme.limit is
 * cfg->nvme.limit. Times are in nanoseconds, sizes in bytes. */
struct config {
    char runtime_dir[CONFIG_PATH_BYTES];
    char socket_mode_text[8]; /* octal, as written */
    mode_t socket_mode;
    char secret_file[CONFIG_PATH_BYTES]; /* empty: a new random secret at each start */

    struct {
        unsigned level; /* enum log_level */
        bool json;
    } log;
    struct {
        char listen[CONFIG_PATH_BYTES]; /* http_address_read() takes it; empty: off */
    } metrics;
    struct {
        uint64_t budget;
    } memory;
    struct {
        uint64_t limit; /* of slots */
        uint64_t chunk;
        unsigned huge_pages; /* enum config_huge_pages */
        bool prefault;
        unsigned numa;                   /* enum config_numa */
        char persist[CONFIG_PATH_BYTES]; /* "off", "systemd" or a directory */
    } host;
    struct {
        char paths[CONFIG_LIST_BYTES];    /* separated by commas; empty: no storage tier */
        char replaced[CONFIG_LIST_BYTES]; /* those of `paths` whose drive is new; commas */
        uint64_t limit;                   /* over all paths */
        uint64_t segment;                 /* 0: the tier's choice */
        char journal[CONFIG_PATH_BYTES];
        uint64_t writes_per_day; /* bytes; 0: no limit */
        char endurance_text[16]; /* how often `limit` may be written a day, as written */
        uint64_t endurance;      /* the same number in thousandths */
        uint64_t io_timeout, sync;
        uint64_t queue; /* bytes of I/O in flight */
    } nvme;
    struct {
        char devices_text[CONFIG_LIST_BYTES]; /* as written */
        struct hbm_devices devices;
        uint64_t chunk;    /* 0: the tier's choice */
        char eviction[32]; /* a name that policy_by_name() knows */
        bool verify, exit_when_lost;
        uint64_t emu_memory, emu_latency;
        uint64_t emu_bandwidth; /* bytes per second; 0: no limit */
        char emu_fault[CONFIG_PATH_BYTES];
    } hbm;
    struct {
        uint32_t threads;
        uint64_t inflight; /* bytes */
    } copy;
    struct {
        uint64_t session_max;
        uint64_t total;
    } staging;
    struct {
        uint32_t blocks;
    } index;
    struct {
        char dir[CONFIG_PATH_BYTES]; /* empty: node_names.h says where */
    } names;
    struct {
        char eviction[32];  /* a name that policy_by_name() knows */
        uint32_t pin_limit; /* percent of host.limit and nvme.limit that a tenant may pin */
        bool admission, load_or_recompute;
    } policy;
    struct {
        unsigned backend; /* enum loop_backend */
        uint32_t io_threads;
    } loop;
    struct {
        uint32_t sessions;
        uint32_t namespaces;
        uint32_t requests;         /* in flight per session */
        uint64_t lease_bytes;      /* per session */
        uint32_t leases;           /* of all sessions */
        uint32_t waiters;          /* requests that wait or copy, of all sessions */
        uint64_t reserve_progress; /* 0: none */
        uint32_t names;            /* conversations and documents; 0: none */
        uint64_t name_tokens;      /* bytes of token ids of documents */
    } limits;
    struct {
        uint64_t timeout;
    } drain;
    struct {
        uint32_t records;
    } flight;

    struct config_principal principals[CONFIG_PRINCIPALS_MAX];
    unsigned nprincipals;
    struct config_quota quotas[CONFIG_QUOTAS_MAX];
    unsigned nquotas;

    struct config_given given;
    char file[CONFIG_PATH_BYTES]; /* given.path, cut to this length; empty: no file was given */
    struct config_origin origin[CONFIG_KEYS_MAX]; /* in the order of config_table */
};

struct config_error {
    char where[CONFIG_PATH_BYTES]; /* file name, "--set" or "default" */
    unsigned line;                 /* 0: none */
    char key[64];                  /* empty: not about one key */
    char text[CONFIG_ERROR_TEXT_MAX];
};

/* The first CONFIG_ERRORS_MAX errors, and how many there were. */
struct config_errors {
    unsigned count;
    struct config_error list[CONFIG_ERRORS_MAX];
};

extern const struct option_desc config_table[];
extern const unsigned config_table_len;

/*
 * path NULL: defaults alone. sets: nsets texts "key=value", applied in order after the file. Both
 * are borrowed for as long as *ret lives, for config_load_again(). 0 and *ret; -EINVAL with
 * *ret_errors saying all that is wrong (*ret is then untouched, and *ret_errors is untouched on
 * success). Looks at the file system: what runtime_dir and secret_file need must be there.
 */
KVC_WARN_UNUSED int config_load(const char *path, const char *const *sets, unsigned nsets,
                                struct config *ret, struct config_errors *ret_errors);

/* One key whose value differs. `was` and `is` are as --print-config shows them; lists
 * ("principals", "quotas") have none and are empty. is_live: the new value can be taken by a
 * running daemon. */
struct config_change {
    const char *key;
    const char *was, *is;
    bool is_live;
};
typedef void (*config_change_fn)(void *ctx, const struct config_change *change);

/* config_load() with what `now` was loaded from. Numbers that stay "auto" have the value of `now`.
 * Paths are not looked at: none is taken while the daemon runs, and one whose drive has failed is
 * no error in the file. */
KVC_WARN_UNUSED int config_load_again(const struct config *now, struct config *ret,
                                      struct config_errors *ret_errors);
/* Tells fn each difference, in the order of the table, lists last. */
void config_diff(const struct config *now, const struct config *next, config_change_fn fn,
                 void *ctx);
/* Gives `now` the values of `next` that can be taken while running, quotas among them. */
void config_take_live(struct config *now, const struct config *next);

/* "etc/x.yaml:12: host.limit: expected ..., got '12abc'; ..." cut to cap; buf. */
const char *config_error_format(const struct config_error *e, char *buf, size_t cap);
/* One line per error, and a last one where there were more than are kept. */
void config_errors_print(const struct config_errors *errors, FILE *out);
/* Logs each kept error as a line that begins with `prefix`. */
void config_errors_log(const struct config_errors *errors, const char *prefix);

/* YAML that config_load() takes back to the same values, with a comment at each key that says where
 * its value came from. -EIO when `out` does not take it, -ENOMEM. */
KVC_WARN_UNUSED int config_print(const struct config *cfg, FILE *out);

/* Where the value of a key came from: "default", "--set", "FILE:12"; printable ASCII, cut to cap.
 */
void config_origin_text(const struct config *cfg, const char *key, char *buf, size_t cap);

/* The principal that holds this uid, or NULL. */
const struct config_principal *config_principal_of(const struct config *cfg, uid_t uid);

/* The index of a key of the table, which must exist (MUST). */
unsigned config_key(const char *key);

#endif
