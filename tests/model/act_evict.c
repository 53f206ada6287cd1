/* SPDX-License-Identifier: Apache-2.0 */
/* Eviction on request: what goes is foreseen. */
#include <stdlib.h>

#include "act.h"

/* ---- evict ---- */

static void on_job_done(struct core_evict_job *job)
{
    job->client = NULL;
}

struct foreseen {
    uint64_t blocks, bytes, kept, largest;
    bool *gone;
};

struct age_of {
    uint32_t ns, group;
    uint64_t ms;
};

static void on_age(void *ctx, const struct kvc_block_info *x)
{
    struct age_of *a = ctx;
    if (x->state != KVC_BLOCK_ABSENT && x->ns == a->ns && x->group == a->group)
        a->ms = x->age_ms;
}

static bool job_matches(struct model *m, const struct core_evict_job *job,
                        const struct core_identity *who, int i)
{
    const struct m_block *b = &m->block[i];
    const struct m_ns *ns = &m->ns[b->ns];
    if (b->state == M_DEAD || (job->ns && ns->id != job->ns))
        return false;
    if (!who->admin && (ns->principal != who->principal || (ns->spec.sub[0] && !who->gateway)))
        return false;
    struct age_of age = {.ns = ns->id, .group = b->group};
    m_tell(m, ns->id, b->key, on_age, &age);
    return age.ms >= job->older_than_ms;
}

static void foresee_tree(struct model *m, int i, struct foreseen *f)
{
    for (int k = m->first_live; k < m->nblocks; k++)
        if (m->block[k].parent == i && m->block[k].state != M_DEAD)
            foresee_tree(m, k, f);
    if (f->gone[i])
        return;
    f->gone[i] = true;
    if (m_is_kept(m, i)) {
        f->kept++;
        return;
    }
    f->blocks++;
    f->bytes += m_bytes_present(m, &m->block[i]);
}

static void foresee(struct model *m, const struct core_evict_job *job,
                    const struct core_identity *who, struct foreseen *f)
{
    for (int i = m->first_live; i < m->nblocks; i++) {
        if (m->block[i].state != M_DEAD)
            f->largest = MAX(f->largest, m_bytes_present(m, &m->block[i]));
        if (!job_matches(m, job, who, i))
            continue;
        if (job->have_key) {
            if (memcmp(m->block[i].key, job->key.b, KVC_KEY_BYTES) == 0)
                foresee_tree(m, i, f);
        } else if (m_is_kept(m, i)) {
            f->kept++;
        } else {
            foresee_tree(m, i, f);
        }
    }
}

void do_evict(struct model *m)
{
    int c = any_client(m);
    if (c == M_NONE)
        return;
    bool admin = rnd(m, 4) == 0;
    struct core_identity who = admin ? (struct core_identity){.admin = true} : m->client[c].who;
    struct core_evict_job job = {.client = admin ? m->admin : m->client[c].cl,
                                 .done = on_job_done,
                                 .dry_run = rnd(m, 2),
                                 .older_than_ms = rnd(m, 2) ? 0 : rnd(m, 400),
                                 .bytes = rnd(m, 3) ? 0 : 1 + rnd(m, 4000)};
    if (m->nns && rnd(m, 2))
        job.ns = m->ns[rnd(m, m->nns)].id;
    job.have_key = m->nblocks > m->first_live && rnd(m, 3) != 0;
    if (job.have_key) {
        uint32_t window = (uint32_t)(m->nblocks - m->first_live);
        memcpy(job.key.b, m->block[m->first_live + (int)rnd(m, window)].key, KVC_KEY_BYTES);
    }
    struct foreseen f = {.gone = calloc((size_t)m->nblocks + 1, sizeof(bool))};
    MUST(f.gone != NULL);
    foresee(m, &job, &who, &f);
    free(f.gone);
    core_evict_start(m->core, &job);
    while (core_background_step(m->core))
        continue;
    HOLDS(m, job.client == NULL);
    if (job.bytes == 0) {
        HOLDS(m, job.ret_blocks == f.blocks && job.ret_bytes == f.bytes && job.ret_kept == f.kept);
    } else {
        HOLDS(m, job.ret_bytes >= MIN(job.bytes, f.bytes) && job.ret_bytes <= f.bytes);
        HOLDS(m, job.ret_bytes < job.bytes + f.largest);
    }
    m_sync(m, !job.dry_run);
}

void evict_all(struct model *m)
{
    struct core_evict_job job = {.client = m->admin, .done = on_job_done};
    core_evict_start(m->core, &job);
    while (core_background_step(m->core))
        continue;
    HOLDS(m, job.client == NULL && job.ret_kept == 0);
    m_sync(m, true);
}
