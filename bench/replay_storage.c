/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvcache/kvcache.h>

#include "bench_rig.h"
#include "replay.h"

struct answer {
    struct replay_storage storage;
    uint32_t found;
};

static int take(void *ctx, const struct kvc_stat *stat)
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
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (strcmp(stat->name, wanted[i].name) == 0) {
            *wanted[i].to = stat->value;
            answer->found++;
        }
    }
    return 0;
}

static int ask(const char *socket, struct answer *answer)
{
    struct kvc_options options = {
        .socket = socket, .name = "kvcachebench", .timeout_ms = 60000, .must_connect = true};
    struct kvc *kvc = NULL;
    int rc = kvc_open(&options, &kvc);
    if (rc == 0)
        rc = kvc_stats(kvc, take, answer);
    if (rc < 0)
        say_error("statistics: %s: %s", kvc_error_name(rc), kvc_last_error(kvc));
    else if (answer->found == 0)
        say_error("the daemon says nothing of a tier on storage (statistics nvme.*)");
    kvc_close(&kvc);
    return rc < 0 ? say_exit_code(rc) : answer->found ? 0 : BENCH_FAILED;
}

int replay_storage(const char *socket, struct replay_storage *storage)
{
    struct answer *answer =
        mmap(NULL, sizeof(*answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (answer == MAP_FAILED) {
        say_error("mmap: %s", strerror(errno));
        return BENCH_FAILED;
    }
    answer->storage = *storage;
    /* The next workers are forked from here: no session may be opened before. */
    pid_t pid = fork();
    if (pid == 0) {
        rig_disown();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(ask(socket, answer));
    }
    int status = 0;
    int rc = BENCH_FAILED;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status))
        rc = WEXITSTATUS(status);
    if (rc == 0)
        *storage = answer->storage;
    munmap(answer, sizeof(*answer));
    return rc;
}
