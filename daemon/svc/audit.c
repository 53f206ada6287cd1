/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Audit: one line of log and one count for each change or removal that a session made by hand, with
 * who made it.
 */
#include <stdarg.h>
#include <stdio.h>

#include "svc__.h"
#include "units.h"

#define WHAT_BYTES  640u
#define LINES_PER_S 100u

void audit(struct session *se, const char *format, ...)
{
    char what[WHAT_BYTES];
    va_list args;
    va_start(args, format);
    (void)!vsnprintf(what, sizeof what, format, args);
    va_end(args);
    se->svc->m.audited++;
    /* A session that pins in a loop must not fill the log, and holds back lines of its own alone.
     */
    LOG_LIMITED(LOG_INFO_, &se->audits, LINES_PER_S,
                "audit: uid %u, pid %d, principal %s, session %u (%s): %s", (unsigned)se->uid,
                (int)se->pid, se->principal->name, se->serial, se->name, what);
}

void svc_audit_signal(struct svc *s, uint32_t uid, int pid, const char *what)
{
    if (s)
        s->m.audited++;
    if (pid > 0)
        LOG_INFO("audit: uid %u, pid %d, by a signal: %s", uid, pid, what);
    else
        LOG_INFO("audit: the kernel or a terminal, by a signal: %s", what);
}

__attribute__((format(printf, 3, 4))) static void filter_add(char *text, size_t cap,
                                                             const char *format, ...)
{
    const size_t n = strlen(text);
    va_list args;
    va_start(args, format);
    (void)!vsnprintf(text + n, cap - n, format, args);
    va_end(args);
}

static void evict_filter(const struct core_evict_job *job, char *text, size_t cap)
{
    char unit[UNITS_TEXT_BYTES];
    text[0] = '\0';
    if (job->ns)
        filter_add(text, cap, ", namespace %u", job->ns);
    if (job->have_key) {
        filter_add(text, cap, ", key ");
        for (unsigned i = 0; i < KVC_KEY_BYTES; i++)
            filter_add(text, cap, "%02x", job->key.b[i]);
    }
    if (job->tenant)
        filter_add(text, cap, ", tenant %s", job->tenant);
    if (job->model)
        filter_add(text, cap, ", model %s", job->model);
    if (job->older_than_ms)
        filter_add(text, cap, ", older than %s",
                   units_format_duration_ms(job->older_than_ms, unit));
    if (job->level_below)
        filter_add(text, cap, ", priority below %u", (unsigned)job->level_below);
    if (job->bytes)
        filter_add(text, cap, ", until %s are gone", units_format_bytes(job->bytes, unit));
    if (job->force)
        filter_add(text, cap, ", pinned ones too");
    if (text[0] == '\0')
        filter_add(text, cap, ", all");
}

void audit_evicted(struct session *se, const struct core_evict_job *job)
{
    char filter[2 * KVC_STRING_MAX + 256], bytes[UNITS_TEXT_BYTES];
    if (job->dry_run)
        return;
    evict_filter(job, filter, sizeof filter);
    audit(se, "evict%s: took %llu blocks, %s; kept %llu%s%s", filter,
          (unsigned long long)job->ret_blocks, units_format_bytes(job->ret_bytes, bytes),
          (unsigned long long)job->ret_kept, job->ret_err ? "; " : "",
          job->ret_err ? codec_status_text(status_of(job->ret_err)) : "");
}

static const char *of_bytes(uint64_t bytes, char text[UNITS_TEXT_BYTES])
{
    return bytes == UINT64_MAX ? "none" : units_format_bytes(bytes, text);
}

void audit_quota(struct session *se, const struct core_quota *q)
{
    char whose[2 * KVC_STRING_MAX + 32], limit[2][UNITS_TEXT_BYTES], share[2][UNITS_TEXT_BYTES];
    if (q->scope == KVC_SCOPE_NS)
        (void)snprintf(whose, sizeof whose, "namespace %u", q->ns);
    else
        (void)snprintf(whose, sizeof whose, "tenant %s%s%s", q->tenant ? q->tenant : "",
                       q->sub ? ", sub " : "", q->sub ? q->sub : "");
    audit(se, "quota of %s: host limit %s, share %s; nvme limit %s, share %s", whose,
          of_bytes(q->bytes.limit[0], limit[0]), of_bytes(q->bytes.share[0], share[0]),
          of_bytes(q->bytes.limit[1], limit[1]), of_bytes(q->bytes.share[1], share[1]));
}

void audit_forgotten(struct session *se, const char *name, const char *sub, bool evicts,
                     const struct core_evicted *x)
{
    char bytes[UNITS_TEXT_BYTES];
    audit(se, "forget %s%s%s%s: took %llu blocks, %s; kept %llu", name[0] != '\0' ? name : "a name",
          sub[0] != '\0' ? ", sub " : "", sub, evicts ? ", with its blocks" : "",
          (unsigned long long)x->blocks, units_format_bytes(x->bytes, bytes),
          (unsigned long long)x->kept);
}
