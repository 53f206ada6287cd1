/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are right: defaults, files, --set, principals, and printing them again. */
#include "cases.h"
#include "scratch.h"

static void assert_same_values(const struct config *a, const struct config *b)
{
    char x[512], y[512];

    OPTION_FOR_EACH (d, config_table, config_table_len) {
        ck_assert_int_ge(option_format(d, a, x, sizeof(x)), 0);
        ck_assert_int_ge(option_format(d, b, y, sizeof(y)), 0);
        ck_assert_msg(strcmp(x, y) == 0, "%s: '%s' and '%s'", d->key, x, y);
    }
    ck_assert_uint_eq(a->socket_mode, b->socket_mode);
    ck_assert_uint_eq(a->nprincipals, b->nprincipals);
    for (unsigned i = 0; i < a->nprincipals; i++) {
        const struct config_principal *p = &a->principals[i], *q = &b->principals[i];
        ck_assert_str_eq(p->name, q->name);
        ck_assert_str_eq(p->tenant, q->tenant);
        ck_assert_uint_eq(p->nuids, q->nuids);
        ck_assert_mem_eq(p->uids, q->uids, p->nuids * sizeof(p->uids[0]));
        ck_assert_int_eq(p->gateway, q->gateway);
        ck_assert_int_eq(p->admin, q->admin);
    }
}

static struct config load_with(const char *path, const char *const *sets, unsigned nsets)
{
    const char *all[8] = {scratch_runtime};
    struct config_errors errors;
    struct config cfg;
    char text[2048];

    for (unsigned i = 0; i < nsets; i++)
        all[i + 1] = sets[i];
    if (config_load(path, all, nsets + 1, &cfg, &errors) < 0)
        ck_abort_msg("%s", config_error_format(&errors.list[0], text, sizeof(text)));
    return cfg;
}

static const char *print(const struct config *cfg, char *buf, size_t cap)
{
    FILE *f = fmemopen(buf, cap, "w");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(config_print(cfg, f), 0);
    ck_assert_int_eq(fclose(f), 0);
    return buf;
}

CASES(.setup = scratch_setup, .teardown = scratch_teardown);

CASE(every_default_passes_its_own_row)
{
    struct config cfg = {0};
    char why[512] = "";

    ck_assert_msg(option_defaults(config_table, config_table_len, &cfg, why, sizeof(why)) == 0,
                  "%s", why);
}

CASE_EACH(an_empty_file_is_the_defaults, 8)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        "# nothing\n",
                                        "---\n",
                                        "host:\nlog:\n",
                                        "principals:\n",
                                        "{}",
                                        "\xEF\xBB\xBF# BOM\n"};
    struct config defaults = load_with(NULL, NULL, 0);
    struct config cfg = scratch_config(texts[_i]);

    assert_same_values(&cfg, &defaults);
}

CASE(sizes_take_units)
{
    struct config cfg = scratch_config("host: {limit: 64GiB}\nmemory: {budget: \"80GiB\"}\n");

    ck_assert_uint_eq(cfg.host.limit, UINT64_C(68719476736));
    ck_assert_uint_eq(cfg.memory.budget, UINT64_C(85899345920));
}

CASE(values_of_every_type_arrive)
{
    struct config cfg = scratch_config("log:\n"
                                       "  level: warn\n"
                                       "  json: true\n"
                                       "loop:\n"
                                       "  backend: epoll\n"
                                       "  io_threads: 7\n"
                                       "drain:\n"
                                       "  timeout: 250ms\n"
                                       "socket_mode: \"0666\"\n"
                                       "index.blocks: 2048\n");

    ck_assert_uint_eq(cfg.log.level, 2);
    ck_assert(cfg.log.json);
    ck_assert_uint_eq(cfg.loop.backend, 2);
    ck_assert_uint_eq(cfg.loop.io_threads, 7);
    ck_assert_uint_eq(cfg.drain.timeout, 250000000);
    ck_assert_uint_eq(cfg.socket_mode, 0666);
    ck_assert_uint_eq(cfg.index.blocks, 2048);
}

CASE(set_overrides_the_file_and_the_last_set_wins)
{
    static const char *const sets[] = {"host.limit=8GiB", "host.limit=16GiB"};
    static const char text[] = "host:\n  limit: 4GiB\n  chunk: 4MiB\n";

    scratch_write("x.yaml", text, strlen(text));
    struct config cfg = load_with("x.yaml", sets, 2);

    ck_assert_uint_eq(cfg.host.limit, UINT64_C(16) << 30);
    ck_assert_int_eq(cfg.origin[config_key("host.limit")].from, CONFIG_FROM_SET);
    ck_assert_int_eq(cfg.origin[config_key("host.chunk")].from, CONFIG_FROM_FILE);
    ck_assert_uint_eq(cfg.origin[config_key("host.chunk")].line, 3);
    ck_assert_int_eq(cfg.origin[config_key("log.level")].from, CONFIG_FROM_DEFAULT);
    char from[256], cut[8];
    config_origin_text(&cfg, "host.limit", from, sizeof(from));
    ck_assert_str_eq(from, "--set");
    config_origin_text(&cfg, "log.level", from, sizeof(from));
    ck_assert_str_eq(from, "default");
    config_origin_text(&cfg, "host.chunk", from, sizeof(from));
    ck_assert_str_eq(from + strlen(from) - 2, ":3");
    config_origin_text(&cfg, "host.chunk", cut, sizeof(cut));
    ck_assert_uint_eq(strlen(cut), sizeof(cut) - 1);
}

CASE(without_principals_the_own_uid_is_served)
{
    struct config cfg = scratch_config("");

    ck_assert_uint_eq(cfg.nprincipals, 1);
    ck_assert_str_eq(cfg.principals[0].name, "self");
    ck_assert_str_eq(cfg.principals[0].tenant, "default");
    ck_assert(cfg.principals[0].admin && !cfg.principals[0].gateway);
    ck_assert_ptr_eq(config_principal_of(&cfg, geteuid()), &cfg.principals[0]);
    ck_assert_ptr_null(config_principal_of(&cfg, geteuid() + 1));
}

static const char two_principals[] = "principals:\n"
                                     "  - name: vllm\n"
                                     "    uids: [1001, 1002]\n"
                                     "    tenant: chat\n"
                                     "    gateway: yes\n"
                                     "  - {name: operator, uids: [0], admin: true}\n";

CASE(principals_are_read)
{
    struct config cfg = scratch_config(two_principals);

    ck_assert_uint_eq(cfg.nprincipals, 2);
    ck_assert_str_eq(cfg.principals[0].name, "vllm");
    ck_assert_str_eq(cfg.principals[0].tenant, "chat");
    ck_assert(cfg.principals[0].gateway && !cfg.principals[0].admin);
    ck_assert_str_eq(cfg.principals[1].tenant, "default");
    ck_assert(cfg.principals[1].admin);
    ck_assert_ptr_eq(config_principal_of(&cfg, 1002), &cfg.principals[0]);
    ck_assert_ptr_eq(config_principal_of(&cfg, 0), &cfg.principals[1]);
    ck_assert_ptr_null(config_principal_of(&cfg, 1003));
}

CASE(quotas_are_read_and_printed_again)
{
    static char printed[16384];
    struct config cfg = scratch_config("principals:\n"
                                       "  - {name: vllm, uids: [1000], tenant: chat}\n"
                                       "quotas:\n"
                                       "  - tenant: chat\n"
                                       "    host: 4GiB\n"
                                       "    nvme_share: 1MiB\n"
                                       "  - {tenant: chat, sub: s, nvme: 0}\n");
    print(&cfg, printed, sizeof(printed));
    scratch_write("again.yaml", printed, strlen(printed));
    const struct config copy = load_with("again.yaml", NULL, 0), *both[] = {&cfg, &copy};
    for (unsigned i = 0; i < 2; i++) {
        const struct config_quota *q = both[i]->quotas;
        ck_assert_uint_eq(both[i]->nquotas, 2);
        ck_assert_str_eq(q[0].tenant, "chat");
        ck_assert_str_eq(q[0].sub, "");
        ck_assert_uint_eq(q[0].host, UINT64_C(4) << 30);
        ck_assert_uint_eq(q[0].nvme, UINT64_MAX);
        ck_assert_uint_eq(q[0].nvme_share, 1u << 20);
        ck_assert_str_eq(q[1].sub, "s");
        ck_assert_uint_eq(q[1].nvme, 0);
        ck_assert_uint_eq(q[1].host_share, 0);
    }
}

CASE(devices_are_read_and_printed_again)
{
    static char printed[16384];
    struct config cfg = scratch_config("hbm:\n"
                                       "  devices: ' emu:0 = 64MiB,emu:7'\n"
                                       "  chunk: 4MiB\n"
                                       "  eviction: arc\n"
                                       "  verify: false\n"
                                       "  exit_when_lost: true\n"
                                       "  emu_memory: 128MiB\n"
                                       "  emu_latency: 2500ns\n"
                                       "  emu_bandwidth: 2GiB\n"
                                       "  emu_fault: /tmp/a fault\n");
    print(&cfg, printed, sizeof(printed));
    scratch_write("again.yaml", printed, strlen(printed));
    const struct config copy = load_with("again.yaml", NULL, 0), *both[] = {&cfg, &copy};
    for (unsigned i = 0; i < 2; i++) {
        const struct config *c = both[i];
        ck_assert_uint_eq(c->hbm.devices.n, 2);
        ck_assert_uint_eq(c->hbm.chunk, 4u << 20);
        ck_assert_str_eq(c->hbm.eviction, "arc");
        ck_assert_str_eq(c->hbm.devices.entry[0].name, "emu:0");
        ck_assert_uint_eq(c->hbm.devices.entry[0].limit_bytes, 64u << 20);
        ck_assert_str_eq(c->hbm.devices.entry[1].name, "emu:7");
        ck_assert_uint_eq(c->hbm.devices.entry[1].limit_bytes, 0);
        ck_assert_uint_eq(hbm_devices_bytes(&c->hbm.devices), 64u << 20);
        ck_assert(!c->hbm.verify);
        ck_assert(c->hbm.exit_when_lost);
        ck_assert_uint_eq(c->hbm.emu_memory, 128u << 20);
        ck_assert_uint_eq(c->hbm.emu_latency, 2500);
        ck_assert_uint_eq(c->hbm.emu_bandwidth, UINT64_C(2) << 30);
        ck_assert_str_eq(c->hbm.emu_fault, "/tmp/a fault");
    }
}

CASE(sixteen_principals_of_sixteen_uids_fit)
{
    char text[8192] = "principals:\n";
    size_t n = strlen(text);

    for (unsigned p = 0; p < CONFIG_PRINCIPALS_MAX; p++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "  - name: p%u\n    uids: [%u", p,
                              p * 100);
        for (unsigned u = 1; u < CONFIG_UIDS_MAX; u++)
            n += (size_t)snprintf(text + n, sizeof(text) - n, ", %u", p * 100 + u);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "]\n");
    }
    struct config cfg = scratch_config(text);

    ck_assert_uint_eq(cfg.nprincipals, CONFIG_PRINCIPALS_MAX);
    ck_assert_str_eq(config_principal_of(&cfg, 1515)->name, "p15");
}

CASE_EACH(print_config_is_accepted_again, 5)
{
    static const char *const texts[] = {
        "",
        two_principals,
        "host: {limit: 3GiB, chunk: 4MiB, huge_pages: require, prefault: off}\n",
        "secret_file: \"/tmp/a \\\"b\\\" \\\\ # c: \\u00fc\\u2028\"\n",
        "limits: {lease_bytes: 1234567, leases: 12}\ndrain: {timeout: 1500ms}\n",
    };
    static char printed[16384];
    struct config cfg = scratch_config(texts[_i]);

    print(&cfg, printed, sizeof(printed));
    scratch_write("again.yaml", printed, strlen(printed));
    struct config again = load_with("again.yaml", NULL, 0);

    assert_same_values(&cfg, &again);
}

CASE(print_config_says_where_values_came_from)
{
    static const char *const sets[] = {"host.limit=8GiB"};
    static const char text[] = "log:\n  level: warn\nprincipals:\n  - {name: a, uids: [7]}\n";
    static char printed[16384];

    scratch_write("x.yaml", text, strlen(text));
    struct config cfg = load_with("x.yaml", sets, 1);
    print(&cfg, printed, sizeof(printed));

    ck_assert_ptr_nonnull(strstr(printed, "\n  level: warn                        # x.yaml:2\n"));
    ck_assert_ptr_nonnull(strstr(printed, "\n  limit: 8GiB                        # --set\n"));
    ck_assert_ptr_nonnull(strstr(printed, "\n  json: false                        # default\n"));
    ck_assert_ptr_nonnull(strstr(printed, "\n  chunk: auto                        # default\n"));
    ck_assert_ptr_nonnull(strstr(printed, "\n  - name: \"a\" # x.yaml:4\n    uids: [7]\n"));
}

CASE(a_file_name_with_a_line_break_stays_in_its_comment)
{
    static char printed[16384];
    static const char text[] = "log:\n  level: warn\n";

    scratch_write("a\nb.yaml", text, strlen(text));
    struct config cfg = load_with("a\nb.yaml", NULL, 0);

    ck_assert_ptr_nonnull(strstr(print(&cfg, printed, sizeof(printed)), "# a?b.yaml:2\n"));
}

static void read_shipped(char *buf, size_t cap, char path[PATH_MAX])
{
    const char *source = getenv("KVC_SOURCE_DIR");

    ck_assert_ptr_nonnull(source);
    (void)!snprintf(path, PATH_MAX, "%s/etc/daemon.yaml", source);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    const size_t n = fread(buf, 1, cap - 1, f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_uint_lt(n, cap - 1);
    buf[n] = '\0';
}

CASE(the_shipped_file_equals_the_defaults_and_names_every_key)
{
    static char text[32768];
    char path[PATH_MAX];
    struct config defaults = load_with(NULL, NULL, 0);

    read_shipped(text, sizeof(text), path);
    struct config shipped = load_with(path, NULL, 0);

    assert_same_values(&shipped, &defaults);
    OPTION_FOR_EACH (d, config_table, config_table_len)
        if (strcmp(d->key, "runtime_dir") != 0)
            ck_assert_msg(shipped.origin[d - config_table].from == CONFIG_FROM_FILE, "%s", d->key);
    /* Both loads had to be told a runtime_dir that exists. */
    ck_assert_ptr_nonnull(strstr(text, "\nruntime_dir: /run/kvcache\n"));
    ck_assert_str_eq(config_table[config_key("runtime_dir")].def, "/run/kvcache");
}

CASE(the_example_principals_of_the_shipped_file_work)
{
    static char text[32768];
    char path[PATH_MAX];

    read_shipped(text, sizeof(text), path);
    char *example = strstr(text, "#principals:\n");
    ck_assert_ptr_nonnull(example);
    for (char *line = example; line != NULL && *line == '#'; line = strchr(line, '\n') + 1)
        *line = ' ';
    struct config cfg = scratch_config(example);

    ck_assert_uint_eq(cfg.nprincipals, 3);
}
