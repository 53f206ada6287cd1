/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the daemon for its counters of storage and devices at the end of a replay. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvcache/admin.h>
#include <kvcache/gpu.h>

#include "bench_rig.h"
#include "replay.h"

struct answer {
    struct replay_storage storage;
    struct replay_hbm hbm;
    uint64_t only_hits;
    uint32_t found, devices;
};

static int replay_ask_take(void *ctx, const struct kvc_stat *stat)
{
    struct answer *answer = ctx;
    struct replay_storage *s = &answer->storage;
    const struct {
        const char *name;
        uint64_t *to;
    } wanted[] = {{"nvme.gets", &s->loaded_blocks},
                  {"nvme.bytes_written", &s->written_bytes},
                  {"nvme.bytes_accepted", &s->accepted_bytes},
                  {"nvme.bytes_journal", &s->journal_bytes},
                  {"nvme.bytes_kept", &s->kept_bytes}};
    if (strcmp(stat->name, "core.hbm_only_hits") == 0)
        answer->only_hits = stat->value;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (strcmp(stat->name, wanted[i].name) == 0) {
            *wanted[i].to = stat->value;
            answer->found++;
        }
    }
    return 0;
}

static int take_device(void *ctx, const void *row)
{
    const struct kvc_device *device = row;
    struct answer *answer = ctx;
    answer->hbm = (struct replay_hbm){.used_bytes = device->used_bytes,
                                      .hits = device->hits,
                                      .only_hits = answer->only_hits,
                                      .fills = device->fills,
                                      .drops = device->drops,
                                      .copies = device->copies,
                                      .copy_bytes = device->copy_bytes,
                                      .failures = device->failures,
                                      .outs = device->outs};
    answer->devices++;
    return 0;
}

static int replay_ask_one(const struct replay_plan *plan, struct answer *answer)
{
    struct kvc_options options = {
        .socket = plan->socket, .name = "kvcachebench", .timeout_ms = 60000, .must_connect = true};
    struct kvc *kvc = NULL;
    int rc = kvc_open(&options, &kvc);
    if (rc == 0)
        rc = kvc_stats(kvc, replay_ask_take, answer);
    if (rc == 0 && plan->device)
        rc = kvc_list(kvc, KVC_TABLE_DEVICES, NULL, take_device, answer);
    const bool silent =
        (plan->storage && answer->found == 0) || (plan->device && answer->devices != 1);
    if (rc < 0)
        say_error("statistics: %s: %s", kvc_error_name(rc), kvc_last_error(kvc));
    else if (silent)
        say_error("the daemon says nothing of its tier on storage (statistics nvme.*) or its "
                  "device");
    kvc_close(&kvc);
    return rc < 0 ? say_exit_code(rc) : silent ? BENCH_FAILED : 0;
}

int replay_ask(const struct replay_plan *plan, struct replay_storage *storage,
               struct replay_hbm *hbm)
{
    struct answer *answer =
        mmap(NULL, sizeof(*answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answer == MAP_FAILED) {
        say_error("mmap: %s", strerror(errno));
        return BENCH_FAILED;
    }
    answer->storage = *storage;
    /* The next workers are forked from this process, so it must not have opened a session. */
    pid_t pid = fork();
    if (pid == 0) {
        rig_disown();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(replay_ask_one(plan, answer));
    }
    int status = 0;
    int rc = BENCH_FAILED;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status))
        rc = WEXITSTATUS(status);
    if (rc == 0) {
        *storage = answer->storage;
        *hbm = answer->hbm;
    }
    munmap(answer, sizeof(*answer));
    return rc;
}
