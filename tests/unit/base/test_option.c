/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>

#include "cases.h"
#include "option.h"

enum level { LOW, MIDDLE, HIGH };

struct settings {
    uint64_t limit, chunk, timeout_ns;
    uint16_t workers;
    uint32_t port;
    bool huge;
    char name[8];
    char socket[32], extra[32];
    enum level level;
};

static const char *const levels[] = {"low", "middle", "high", NULL};

#define ROW(key_, type_, member, ...)                                                      \
    {                                                                                      \
        .key = (key_), .type = (type_), OPTION_FIELD(struct settings, member), __VA_ARGS__ \
    }

static const struct option_desc tab[] = {
    ROW("host.limit", OPT_BYTES, limit, .def = "auto", .flags = OPTF_AUTO, .min = 1 << 20),
    ROW("host.chunk", OPT_BYTES, chunk, .def = "2MiB", .min = 2 << 20, .max = 1 << 30),
    ROW("timeout", OPT_DURATION, timeout_ns, .def = "5s", .min = 1000000),
    ROW("workers", OPT_UINT, workers, .def = "2", .min = 1),
    ROW("port", OPT_UINT, port, .def = "0", .max = 65535),
    ROW("huge", OPT_BOOL, huge, .def = "true"),
    ROW("name", OPT_STRING, name, .def = ""),
    ROW("socket", OPT_PATH, socket, .def = "/run/kvcache/attach"),
    ROW("extra", OPT_PATH, extra, .def = ""),
    ROW("level", OPT_ENUM, level, .def = "middle", .choices = levels),
};
#define N ((unsigned)ARRAY_LEN(tab))

static struct settings set;
static char why[512];

static void setup(void)
{
    memset(&set, 0xee, sizeof(set));
    why[0] = '\0';
    ck_assert_int_eq(option_defaults(tab, N, &set, why, sizeof(why)), 0);
}

static int give(const char *key, const char *value)
{
    return option_set(tab, N, &set, key, value, why, sizeof(why));
}

CASES(.setup = setup);

CASE(defaults_are_stored)
{
    ck_assert_uint_eq(set.limit, 0);
    ck_assert_uint_eq(set.chunk, 2 << 20);
    ck_assert_uint_eq(set.timeout_ns, UINT64_C(5000000000));
    ck_assert_uint_eq(set.workers, 2);
    ck_assert_uint_eq(set.port, 0);
    ck_assert(set.huge);
    ck_assert_str_eq(set.name, "");
    ck_assert_str_eq(set.socket, "/run/kvcache/attach");
    ck_assert_str_eq(set.extra, "");
    ck_assert_int_eq(set.level, MIDDLE);
    ck_assert_str_eq(why, "");
}

CASE(values_are_stored)
{
    ck_assert_int_eq(give("host.limit", "64GiB"), 0);
    ck_assert_uint_eq(set.limit, UINT64_C(64) << 30);
    ck_assert_int_eq(give("host.limit", "auto"), 0);
    ck_assert_uint_eq(set.limit, 0);
    ck_assert_int_eq(give("timeout", "250ms"), 0);
    ck_assert_uint_eq(set.timeout_ns, 250000000);
    ck_assert_int_eq(give("workers", "65535"), 0);
    ck_assert_uint_eq(set.workers, 65535);
    ck_assert_int_eq(give("huge", "off"), 0);
    ck_assert(!set.huge);
    ck_assert_int_eq(give("huge", "yes"), 0);
    ck_assert(set.huge);
    ck_assert_int_eq(give("name", "1234567"), 0);
    ck_assert_str_eq(set.name, "1234567");
    ck_assert_int_eq(give("socket", "/tmp/x"), 0);
    ck_assert_str_eq(set.socket, "/tmp/x");
    ck_assert_int_eq(give("level", "high"), 0);
    ck_assert_int_eq(set.level, HIGH);
}

CASE(refused_values_change_nothing_and_say_why)
{
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"host.limit", "12abc", "got '12abc'"},
        {"host.limit", "64Gi", "GiB"},
        {"host.limit", "1kB", "at least 1MiB"},
        {"host.limit", "0", "'auto'"},
        {"host.limit", "", "got ''"},
        {"host.chunk", "auto", "from 2MiB to 1GiB"},
        {"host.chunk", "2GiB", "from 2MiB to 1GiB"},
        {"host.chunk", "1", "for example '2MiB'"},
        {"timeout", "5", "a duration"},
        {"timeout", "1us", "at least 1ms"},
        {"workers", "65536", "from 1 to 65535"},
        {"workers", "0", "from 1 to 65535"},
        {"workers", "-1", "a whole number"},
        {"workers", "2MiB", "got '2MiB'"},
        {"port", "65536", "from 0 to 65535"},
        {"huge", "maybe", "true or false"},
        {"huge", "TRUE", "true or false"},
        {"name", "12345678", "too long"},
        {"name", "a\nb", "control character"},
        {"socket", "run/x", "absolute path"},
        {"socket", "", "it is empty"},
        {"level", "High", "'low', 'middle', 'high'"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
        const struct settings before = set;
        why[0] = '\0';
        ck_assert_msg(give(cases[i].key, cases[i].value) == -EINVAL, "%s=%s was taken",
                      cases[i].key, cases[i].value);
        ck_assert_mem_eq(&set, &before, sizeof(set));
        ck_assert_msg(strstr(why, "expected ") == why, "%s", why);
        ck_assert_msg(strstr(why, "for example '") != NULL, "%s", why);
        ck_assert_msg(strstr(why, cases[i].says) != NULL, "'%s' is not in: %s", cases[i].says, why);
    }
}

/* What a message offers must work: each "for example '...'" is given back. */
CASE(every_example_is_accepted)
{
    OPTION_FOR_EACH (d, tab, N) {
        if (give(d->key, "\x01?") == 0)
            continue;
        char *example = strstr(why, "for example '");
        ck_assert_ptr_nonnull(example);
        example += strlen("for example '");
        example[strcspn(example, "'")] = '\0';
        char copy[64], again[256];
        ck_assert_uint_lt(strlen(example), sizeof(copy));
        strcpy(copy, example);
        ck_assert_msg(option_set(tab, N, &set, d->key, copy, again, sizeof(again)) == 0,
                      "%s=%s: %s", d->key, copy, again);
    }
}

CASE(an_unknown_key_names_the_nearest)
{
    ck_assert_int_eq(give("hots.limit", "1GiB"), -ENOENT);
    ck_assert_str_eq(why, "no option 'hots.limit'; the nearest is 'host.limit'");
    ck_assert_int_eq(give("time_out", "1s"), -ENOENT);
    ck_assert_ptr_nonnull(strstr(why, "'timeout'"));
    ck_assert_int_eq(give("", "1s"), -ENOENT);
    char long_key[500];
    memset(long_key, 'x', sizeof(long_key) - 1);
    long_key[sizeof(long_key) - 1] = '\0';
    ck_assert_int_eq(give(long_key, "1"), -ENOENT);
    ck_assert_uint_lt(strlen(why), 160);
}

CASE(what_is_quoted_cannot_disturb_a_terminal)
{
    ck_assert_int_eq(give("huge", "\x1b[2J"), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "got '?[2J'"));
}

CASE(a_short_buffer_gets_a_cut_text)
{
    char small[10] = "xxxxxxxxx";
    ck_assert_int_eq(option_set(tab, N, &set, "huge", "maybe", small, sizeof(small)), -EINVAL);
    ck_assert_str_eq(small, "expected ");
    ck_assert_int_eq(option_set(tab, N, &set, "huge", "maybe", NULL, 0), -EINVAL);
}

CASE(formatted_values_are_read_back)
{
    static const char *const values[][2] = {
        {"host.limit", "auto"}, {"host.limit", "64GiB"}, {"host.limit", "1048577"},
        {"timeout", "90s"},     {"timeout", "250ms"},    {"workers", "17"},
        {"huge", "false"},      {"name", "a b"},         {"socket", "/tmp/x"},
        {"extra", ""},          {"level", "low"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(values); i++) {
        char text[64];
        ck_assert_int_eq(give(values[i][0], values[i][1]), 0);
        const int n = option_format(option_find(tab, N, values[i][0]), &set, text, sizeof(text));
        ck_assert_int_eq(n, (int)strlen(values[i][1]));
        ck_assert_str_eq(text, values[i][1]);
    }
    char small[4];
    ck_assert_int_eq(option_format(option_find(tab, N, "socket"), &set, small, sizeof(small)),
                     -ENOSPC);
}

CASE(help_says_what_is_accepted)
{
    char text[128];
    ck_assert_int_gt(option_expects(option_find(tab, N, "host.limit"), text, sizeof(text)), 0);
    ck_assert_str_eq(text, "a size of at least 1MiB, or 'auto'");
    ck_assert_int_gt(option_expects(option_find(tab, N, "workers"), text, sizeof(text)), 0);
    ck_assert_str_eq(text, "a whole number from 1 to 65535");
    ck_assert_int_eq(option_expects(option_find(tab, N, "level"), text, 5), -ENOSPC);
    ck_assert_ptr_null(option_find(tab, N, "nothing"));
}

CASE(a_default_that_its_own_row_refuses_is_reported)
{
    static const struct option_desc wrong[] = {
        ROW("good", OPT_UINT, workers, .def = "1"),
        ROW("wrong", OPT_BYTES, limit, .def = "12abc"),
    };
    ck_assert_int_eq(option_defaults(wrong, 2, &set, why, sizeof(why)), -EINVAL);
    ck_assert_ptr_eq(strstr(why, "wrong: expected a size"), why);
}

CASE_DIES(a_size_in_a_narrow_field_aborts, SIGABRT)
{
    static const struct option_desc narrow[] = {ROW("narrow", OPT_BYTES, port, .def = "1")};
    ck_assert_int_eq(option_set(narrow, 1, &set, "narrow", "1", why, sizeof(why)), 0);
}
