/* SPDX-License-Identifier: Apache-2.0 */
#include "hostile.h"

#include <check.h>

#define STAGING_BYTES (1u << 20)
/* What an allocator may keep of what was freed. */
#define RSS_SLACK (64u << 20)

/* The daemon touches its tables in the background after its start: once it does not any more. */
static uint64_t settled_rss_bytes(const struct rig *r)
{
    rig_await_prefault(r);
    return daemon_rss_bytes(r);
}

void hostile_begin(struct hostile *s, const char *const *sets)
{
    static struct rig rig;
    rig_free_soon();
    s->rig = &rig;
    rig_start(s->rig, sets);
    s->k = rig_open(s->rig, STAGING_BYTES);
    s->ns = rig_ns(s->k, "healthy", HOSTILE_BT, HOSTILE_BLOCK);
    rig_keys(s->ns, 7, HOSTILE_BT, HOSTILE_BLOCKS, s->keys);
    hostile_serve(s);
    rig_wait_stat(s->k, "svc.sessions", 1);
    s->fds = daemon_descriptors(s->rig);
    s->rss = settled_rss_bytes(s->rig);
}

void hostile_serve_hit(struct hostile *s)
{
    ck_assert_uint_eq(rig_load(s->k, s->ns, s->keys, HOSTILE_BLOCKS, HOSTILE_BT, HOSTILE_BLOCK),
                      HOSTILE_BLOCKS);
}

void hostile_serve(struct hostile *s)
{
    uint8_t statuses[HOSTILE_BLOCKS];
    if (rig_load(s->k, s->ns, s->keys, HOSTILE_BLOCKS, HOSTILE_BT, HOSTILE_BLOCK) < HOSTILE_BLOCKS)
        (void)rig_store(s->k, s->ns, s->keys, 0, HOSTILE_BLOCKS, HOSTILE_BT, HOSTILE_BLOCK,
                        statuses);
    hostile_serve_hit(s);
}

static void wait_descriptors(struct hostile *s)
{
    unsigned now = 0;
    for (unsigned i = 0; i < 3000; i++) {
        now = daemon_descriptors(s->rig);
        if (now <= s->fds)
            return;
        rig_sleep_ms(10);
    }
    ck_abort_msg("%u descriptors, %u before", now, s->fds);
}

void hostile_end(struct hostile *s)
{
    rig_wait_stat(s->k, "svc.sessions", 1);
    rig_wait_stat(s->k, "svc.staging_bytes", STAGING_BYTES);
    rig_wait_stat(s->k, "core.leases", 0);
    rig_wait_stat(s->k, "core.leased_bytes", 0);
    rig_wait_stat(s->k, "core.reservations", 0);
    rig_wait_stat(s->k, "core.blocks_pending", 0);
    rig_wait_stat(s->k, "svc.calls", 0);
    hostile_serve(s);
    wait_descriptors(s);
    uint64_t rss = daemon_rss_bytes(s->rig);
    ck_assert_msg(rss <= s->rss + RSS_SLACK, "%llu bytes of memory, %llu before",
                  (unsigned long long)rss, (unsigned long long)s->rss);
    struct kvc_evict_filter all = {0};
    struct kvc_evicted gone;
    ck_assert_int_eq(kvc_evict(s->k, &all, &gone), 0);
    ck_assert_uint_eq(rig_stat(s->k, "core.blocks_present"), 0);
    ck_assert_uint_eq(rig_stat(s->k, "daemon.host_used_bytes"), 0);
    kvc_close(&s->k);
    rig_stop(s->rig);
    rig_clean(s->rig);
}
