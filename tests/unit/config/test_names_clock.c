/* SPDX-License-Identifier: Apache-2.0 */
/* The clock by which names age goes on over restarts of the daemon, and over none of the machine.
 */
#include "cases.h"
#include "names_clock.h"
#include "scratch.h"

#define NOW_MS UINT64_C(1700000000000)

static char text[128];

static void read_file(void)
{
    FILE *f = fopen(NAMES_CLOCK_FILE, "r");
    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    ck_assert_int_eq(fclose(f), 0);
}

CASES(.setup = scratch_setup, .teardown = scratch_teardown);

CASE(it_goes_on)
{
    ck_assert_uint_eq(names_clock_read("."), 0);
    ck_assert_int_eq(names_clock_write(".", NOW_MS), 0);
    ck_assert_uint_ge(names_clock_read("."), NOW_MS);
    /* As if that had been an hour ago, of this start of the machine. */
    char boot[64];
    unsigned long long was_ms, since_ms;
    read_file();
    ck_assert_int_eq(sscanf(text, "%63s %llu %llu", boot, &was_ms, &since_ms), 3);
    ck_assert_uint_eq(was_ms, NOW_MS);
    (void)!snprintf(text, sizeof text, "%s %llu 0\n", boot, was_ms);
    scratch_write(NAMES_CLOCK_FILE, text, strlen(text));
    ck_assert_uint_ge(names_clock_read("."), NOW_MS + since_ms);
}

CASE(another_start_of_the_machine_and_nonsense_say_nothing)
{
    static const char *const wrong[] = {"",
                                        "\n",
                                        "1700000000000\n",
                                        "00000000-0000-0000-0000-000000000000 1700000000000 0\n",
                                        "%s 1700000000000\n",
                                        "%s 1700000000000 0",
                                        "%s 1700000000000 18446744073709551615\n",
                                        "%s 18446744073709551615 0\n",
                                        "%s later 0\n"};
    char boot[64];
    ck_assert_int_eq(names_clock_write(".", NOW_MS), 0);
    read_file();
    ck_assert_int_eq(sscanf(text, "%63s", boot), 1);
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *at = strstr(wrong[i], "%s");
        (void)!snprintf(text, sizeof text, "%s%s", at != NULL ? boot : "",
                        at != NULL ? at + 2 : wrong[i]);
        scratch_write(NAMES_CLOCK_FILE, text, strlen(text));
        ck_assert_msg(names_clock_read(".") == 0, "'%s'", text);
    }
    ck_assert_int_eq(names_clock_write("none", NOW_MS), -ENOENT);
}
