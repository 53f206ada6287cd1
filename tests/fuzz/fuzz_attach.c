/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attach channel from both ends. The same datagrams (records.h, verbs of stage.h) come to the
 * library as if from a daemon, with descriptors of files of all sizes, while it opens, pings and
 * acquires; and to the daemon's services as if from a worker, which are answered, or end the
 * session with a reason.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "stage.h"
#include "svc_rig.h"

/* ---- the worker's end ---- */

static void use(struct kvc *k, struct kvc_ns *ns, uint8_t arg)
{
    static const uint8_t keys[2 * KVC_KEY_BYTES] = {1};
    struct kvc_seq seq = {.tokens = 32, .group = {{.keys = keys, .n = 2}}};
    struct kvc_hold *h = NULL;
    uint64_t bytes = 0, uptime;
    uint8_t *staging = kvc_staging(k, &bytes);
    if (staging != NULL && bytes > 0)
        staging[0] = staging[bytes - 1] = 1;
    int rc = arg % 2 && ns != NULL ? kvc_acquire(ns, &seq, NULL, &h) : kvc_ping(k, &uptime);
    FUZZ_CHECK(rc >= 0 || kvc_last_error(k)[0] != '\0', "%d without a text", rc);
    *(rc >= 0 ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
    if (h != NULL && kvc_hold_check(h) == 0)
        FUZZ_CHECK(h->lease != 0 || h->group[0].n == 0, "blocks without a lease");
    kvc_release(k, &h);
}

static void as_worker(const uint8_t *data, size_t size, bool tame)
{
    struct kvc_options o = {.socket = "/nowhere", .name = "fuzz", .staging_bytes = 65536};
    struct kvc_ns_spec spec = {.model = "m",
                               .position = "rope",
                               .attention = "causal",
                               .groups = 1,
                               .group = {{.block_tokens = 16, .block_bytes = 4096}}};
    struct kvc *k = NULL;
    struct kvc_ns *ns = NULL;
    struct record r;
    stage_begin(data, size, tame);
    if (kvc_open(&o, &k) < 0) {
        FUZZ_CHECK(kvc_last_error(NULL)[0] != '\0', "refused without a reason");
        fuzz_tally.refused++;
        stage_end();
        return;
    }
    if (kvc_ns_open(k, &spec, &ns) < 0)
        ns = NULL;
    while (stage_next_call(&r))
        use(k, ns, r.arg);
    kvc_close(&k);
    stage_end();
}

/* ---- the daemon's end ---- */

static struct srig s;
static uint32_t conns;

/* What the daemon has said last is a message of its own. */
static void check_said(const struct sr_peer *p)
{
    struct att_welcome w;
    struct att_chunk c;
    struct att_dropped d;
    struct att_words_are words;
    struct att_mem_is mem;
    struct att_chunk_on on;
    switch (codec_att_code(p->last, p->last_len)) {
    case KVC_ATTACH_WELCOME:
        FUZZ_CHECK(codec_dec_att_welcome(p->last, p->last_len, &w) == 0, "a broken WELCOME");
        FUZZ_CHECK(w.status == KVC_ST_OK || (w.detail.n > 0 && p->closed), "refused, and kept");
        FUZZ_CHECK((w.staging_bytes != 0) == (p->last_fd >= 0), "staging and descriptor");
        break;
    case KVC_ATTACH_CHUNK:
        FUZZ_CHECK(codec_dec_att_chunk(p->last, p->last_len, &c) == 0, "a broken CHUNK");
        FUZZ_CHECK((c.status == KVC_ST_OK) == (p->last_fd >= 0), "chunk and descriptor");
        break;
    case KVC_ATTACH_DROPPED:
        FUZZ_CHECK(codec_dec_att_dropped(p->last, p->last_len, &d) == 0, "a broken DROPPED");
        FUZZ_CHECK(d.status != KVC_ST_OK && d.detail.n > 0, "dropped without a reason");
        break;
    case KVC_ATTACH_WORDS_ARE:
        FUZZ_CHECK(codec_dec_att_words_are(p->last, p->last_len, &words) == 0, "broken WORDS_ARE");
        FUZZ_CHECK((words.status == KVC_ST_OK) == (p->last_fd >= 0), "words and descriptor");
        break;
    case KVC_ATTACH_MEM_IS:
        FUZZ_CHECK(codec_dec_att_mem_is(p->last, p->last_len, &mem) == 0, "a broken MEM_IS");
        FUZZ_CHECK((mem.status == KVC_ST_OK) == (mem.detail.n == 0), "refused without a reason");
        break;
    case KVC_ATTACH_CHUNK_ON:
        FUZZ_CHECK(codec_dec_att_chunk_on(p->last, p->last_len, &on) == 0, "a broken CHUNK_ON");
        break;
    default:
        FUZZ_CHECK(0, "the daemon said something else");
    }
}

static void connect_peer(uid_t uid)
{
    struct sr_peer *p = &s.peer[0];
    *p = (struct sr_peer){.conn = ++conns, .last_fd = -1};
    if (svc_attach_open(s.svc, conns, uid, 4711) < 0) {
        p->closed = true;
        check_said(p);
        p->conn = UINT32_MAX;
    }
}

static void say(const struct record *r)
{
    struct sr_peer *p = &s.peer[0];
    unsigned said = p->messages, asked = s.nstaging;
    uint8_t *bytes = fuzz_copy(r->bytes, r->len);
    bool quiet = codec_att_code(bytes, r->len) == KVC_ATTACH_MEM_DROP;
    (void)sr_attach_raw(&s, p, bytes, r->len, r->arg % 2 ? sr_fd(&s) : -1);
    free(bytes);
    while (s.device[0].imports > 0)
        sr_imported(&s, 0, r->arg % 4 == 3 ? -EINVAL : 0);
    if (s.nstaging > asked)
        sr_staging_ready(&s, r->arg % 8 == 7 ? -ENOMEM : 0);
    sr_turn(&s, 0);
    FUZZ_CHECK(quiet || p->closed || p->messages > said, "a datagram without an answer");
    if (p->messages > 0)
        check_said(p);
}

static void as_daemon(const uint8_t *data, size_t size)
{
    static const uid_t uids[] = {SR_UID_ONE, SR_UID_OPS, SR_UID_GW, 77};
    struct records in = records_of(data, size);
    struct record r;
    sr_defaults(&s);
    s.ndevices = 1;
    sr_begin(&s);
    for (uint8_t i = 0; i < KVC_UUID_BYTES; i++) /* that of the golden vectors */
        s.device[0].uuid[i] = (uint8_t)(0x80 + i);
    for (unsigned n = 0; n < 48 && records_next(&in, &r); n++) {
        struct sr_peer *p = &s.peer[0];
        bool gone = p->conn == UINT32_MAX || p->closed ||
                    codec_att_code(p->last, p->last_len) == KVC_ATTACH_DROPPED;
        if ((gone || r.verb % 16u == STAGE_HANG_UP) && p->conn != UINT32_MAX && !p->closed)
            sr_leave(&s, p);
        if (gone || p->conn == UINT32_MAX)
            connect_peer(uids[r.arg / 64]);
        if (p->conn != UINT32_MAX)
            say(&r);
    }
    sr_end(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_worker(data, size, false);
    as_worker(data, size, true);
    as_daemon(data, size);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    return records_mutate(data, size, max_size, seed);
}
