/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench_rig.h"

enum { START_TIMEOUT_MS = 180000, STOP_TIMEOUT_MS = 10000, PATHS = 6 };

/* The file that a daemon makes in a directory for blocks. */
#define STORE_FILE "kvcache.store"

struct rig {
    pid_t pid;        /* 0 = the rig did not start it */
    const char *name; /* for messages */
    int socket_type;
    char dir[PATH_MAX / 8];
    char socket[PATH_MAX / 4];
    char path[PATHS][PATH_MAX / 4]; /* paths of the files that a daemon leaves there */
    char store[PATH_MAX / 4];       /* directory for blocks; "" = none */
};

/* State of the signal handler; all of it is ready before the handler is installed. */
static struct rig *volatile current;

void rig_set(struct rig_options *options, const char *format, ...)
{
    if (options->n_sets == RIG_SETS_MAX)
        abort();
    va_list args;
    va_start(args, format);
    vsnprintf(options->sets[options->n_sets++], RIG_TEXT_BYTES, format, args);
    va_end(args);
}

static void sleep_ms(unsigned ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

/* Removes the store by another program, because it is a directory tree. A signal handler may call
 * _Fork and execl. */
static void remove_store(const struct rig *rig)
{
    if (!rig->store[0])
        return;
    pid_t pid = _Fork();
    if (pid == 0) {
        execl("/bin/rm", "rm", "-rf", "--", rig->store, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* Nothing here may allocate or lock: unlink, rmdir, kill, waitpid, _exit and remove_store only. */
static void bench_rig_on_signal(int number)
{
    struct rig *rig = current;
    if (rig && rig->pid > 0) {
        kill(rig->pid, SIGKILL);
        waitpid(rig->pid, NULL, 0);
        for (unsigned i = 0; i < PATHS; i++)
            unlink(rig->path[i]);
        rmdir(rig->dir);
        remove_store(rig);
    }
    _exit(128 + number);
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = bench_rig_on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

void rig_disown(void)
{
    current = NULL;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

static int find_daemon(const char *given, char path[PATH_MAX])
{
    if (given) {
        snprintf(path, PATH_MAX, "%s", given);
    } else {
        ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 32);
        if (n < 0) {
            say_error("/proc/self/exe: %s", strerror(errno));
            return BENCH_FAILED;
        }
        path[n] = '\0';
        char *slash = strrchr(path, '/');
        snprintf(slash + 1, 32, "kvcache-daemon");
    }
    if (access(path, X_OK) == 0)
        return 0;
    say_error("%s: %s; build it, name it with --daemon PATH, or name the socket of a running one "
              "with --socket PATH",
              path, strerror(errno));
    return BENCH_DOWN;
}

static int bench_rig_make_directory(struct rig *rig, bool server)
{
    const char *base = getenv("TMPDIR");
    if (!base || base[0] != '/' || strlen(base) > 60)
        base = "/tmp";
    snprintf(rig->dir, sizeof(rig->dir), "%s/kvcachebench-XXXXXX", base);
    if (!mkdtemp(rig->dir)) {
        say_error("cannot make a directory in %s: %s; set TMPDIR to a writable one", base,
                  strerror(errno));
        rig->dir[0] = '\0';
        return BENCH_FAILED;
    }
    static const char *const names[PATHS] = {"attach.sock", "control.sock", "daemon.log",
                                             "daemon.lock", "daemon.yaml",  RIG_SERVER_SOCKET};
    for (unsigned i = 0; i < PATHS; i++)
        snprintf(rig->path[i], sizeof(rig->path[i]), "%s/%s", rig->dir, names[i]);
    snprintf(rig->socket, sizeof(rig->socket), "%s", rig->path[server ? PATHS - 1 : 0]);
    return 0;
}

static int make_store(struct rig *rig, const char *base)
{
    char here[PATH_MAX];
    if (!base)
        return 0;
    if (!realpath(base, here) || strlen(here) > sizeof(rig->store) - 32) {
        say_error("%s: %s", base, errno ? strerror(errno) : "the path is too long");
        return BENCH_USAGE;
    }
    snprintf(rig->store, sizeof(rig->store), "%.960s/kvcachebench-store-XXXXXX", here);
    if (mkdtemp(rig->store))
        return 0;
    say_error("cannot make a directory in %s: %s", base, strerror(errno));
    rig->store[0] = '\0';
    return BENCH_FAILED;
}

/* Static, because nftw() passes no context. */
static struct {
    uint64_t store, other;
} counted;

static int count_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
    /* st_blocks also counts what the file system needs to find the blocks of a file; the file's
     * limit does not. */
    uint64_t allocated = (uint64_t)st->st_blocks * 512, size = (uint64_t)st->st_size;
    uint64_t bytes = allocated < size ? allocated : size;
    if (type == FTW_F && strcmp(path + at->base, STORE_FILE) == 0)
        counted.store += bytes;
    else if (type == FTW_F)
        counted.other += bytes;
    return 0;
}

void rig_store_bytes(const struct rig *rig, uint64_t *ret_store, uint64_t *ret_other)
{
    counted.store = counted.other = 0;
    if (rig->store[0])
        nftw(rig->store, count_file, 8, FTW_PHYS);
    *ret_store = counted.store;
    *ret_other = counted.other;
}

static int write_config(const struct rig *rig, const char *config)
{
    if (!config)
        return 0;
    FILE *f = fopen(rig->path[4], "we");
    bool bad = !f || fputs(config, f) < 0;
    if (f && fclose(f) != 0)
        bad = true;
    if (!bad && chmod(rig->dir, 0711) == 0)
        return 0;
    say_error("%s: %s", rig->path[4], strerror(errno));
    return BENCH_FAILED;
}

/* Runs in the child, between fork and exec. */
static void redirect(const struct rig *rig)
{
    int log = open(rig->path[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    if (log < 0 || null < 0)
        _exit(127);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    /* If the benchmark is killed, its server is killed too. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void exec_server(const struct rig *rig, const char *const *command)
{
    redirect(rig);
    if (chdir(rig->dir) == 0)
        execvp(command[0], (char *const *)command);
    fprintf(stderr, "%s: %s\n", command[0], strerror(errno));
    _exit(127);
}

static void exec_daemon(const struct rig *rig, const struct rig_options *options, const char *path)
{
    char dir[PATH_MAX / 4], store[PATH_MAX / 2];
    snprintf(dir, sizeof(dir), "runtime_dir=%s", rig->dir);
    snprintf(store, sizeof(store), "nvme.paths=%s", rig->store);
    const char *argv[2 * RIG_SETS_MAX + 10];
    size_t n = 0;
    argv[n++] = path;
    argv[n++] = "--set";
    argv[n++] = dir;
    if (options->config) {
        argv[n++] = "--config";
        argv[n++] = rig->path[4];
    }
    if (rig->store[0]) {
        argv[n++] = "--set";
        argv[n++] = store;
    }
    for (size_t i = 0; i < options->n_sets; i++) {
        argv[n++] = "--set";
        argv[n++] = options->sets[i];
    }
    argv[n] = NULL;

    redirect(rig);
    execv(path, (char *const *)argv);
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    _exit(127);
}

static bool accepts_connections(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
        sizeof(address.sun_path))
        return false;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool connected = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return connected;
}

static void show_log_tail(const struct rig *rig)
{
    FILE *log = fopen(rig->path[2], "re");
    if (!log)
        return;
    fseek(log, 0, SEEK_END);
    long length = ftell(log);
    fseek(log, length > 2000 ? length - 2000 : 0, SEEK_SET);
    char line[512];
    while (fgets(line, sizeof(line), log))
        fprintf(stderr, "  | %s", line);
    fclose(log);
}

int rig_check(struct rig *rig)
{
    int status;
    if (rig->pid == 0 || waitpid(rig->pid, &status, WNOHANG) != rig->pid)
        return 0;
    rig->pid = 0;
    if (WIFSIGNALED(status))
        say_error("%s was ended by signal %d (%s); it said last:", rig->name, WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
    else
        say_error("%s exited with code %d; it said last:", rig->name, WEXITSTATUS(status));
    show_log_tail(rig);
    return -ECHILD;
}

static int wait_until_ready(struct rig *rig)
{
    uint64_t until = now_ns() + (uint64_t)START_TIMEOUT_MS * 1000000;
    while (!accepts_connections(rig->socket, rig->socket_type)) {
        if (rig_check(rig) < 0)
            return BENCH_DOWN;
        if (now_ns() > until) {
            say_error("%s did not accept connections within %d s; it said last:", rig->name,
                      START_TIMEOUT_MS / 1000);
            show_log_tail(rig);
            return BENCH_DOWN;
        }
        sleep_ms(10);
    }
    return 0;
}

static int run_server(struct rig *rig, const struct rig_options *options, const char *path)
{
    fflush(NULL);
    rig->pid = fork();
    if (rig->pid == 0 && options->server)
        exec_server(rig, options->server);
    if (rig->pid == 0)
        exec_daemon(rig, options, path);
    if (rig->pid < 0) {
        rig->pid = 0;
        say_error("fork: %s", strerror(errno));
        return BENCH_FAILED;
    }
    return wait_until_ready(rig);
}

static int start_own(struct rig *rig, const struct rig_options *options)
{
    char path[PATH_MAX];
    int rc = options->server ? 0 : find_daemon(options->daemon_path, path);
    if (rc == 0)
        rc = bench_rig_make_directory(rig, options->server);
    if (rc == 0)
        rc = make_store(rig, options->store_in);
    if (rc == 0)
        rc = write_config(rig, options->config);
    if (rc != 0)
        return rc;
    current = rig;
    catch_signals();
    return run_server(rig, options, path);
}

static int use_running(struct rig *rig, const char *socket)
{
    snprintf(rig->socket, sizeof(rig->socket), "%s", socket);
    if (accepts_connections(socket, rig->socket_type))
        return 0;
    say_error("no daemon at %s: is kvcache-daemon running? Start it, name its socket with "
              "--socket, or leave --socket away and a private one is started",
              socket);
    return BENCH_DOWN;
}

int rig_start(const struct rig_options *options, struct rig **ret_rig)
{
    if (options->socket && options->daemon_path)
        return say_usage("--socket uses a daemon that runs, --daemon starts one; give one of them");
    struct rig *rig = calloc(1, sizeof(*rig));
    if (!rig) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    rig->name = options->server ? options->server[0] : "the daemon";
    rig->socket_type = options->server ? SOCK_STREAM : SOCK_SEQPACKET;
    int rc = options->socket ? use_running(rig, options->socket) : start_own(rig, options);
    if (rc != 0) {
        rig_stop(&rig);
        return rc;
    }
    *ret_rig = rig;
    return 0;
}

const char *rig_socket(const struct rig *rig)
{
    return rig->socket;
}

int rig_pid(const struct rig *rig)
{
    return rig->pid;
}

static void remove_directory(const char *path)
{
    DIR *dir = opendir(path);
    if (!dir)
        return;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    closedir(dir);
    rmdir(path);
}

static void end_daemon(struct rig *rig)
{
    kill(rig->pid, SIGTERM);
    uint64_t until = now_ns() + (uint64_t)STOP_TIMEOUT_MS * 1000000;
    while (waitpid(rig->pid, NULL, WNOHANG) == 0) {
        if (now_ns() > until) {
            say_error("%s did not end within %d s of SIGTERM; killed", rig->name,
                      STOP_TIMEOUT_MS / 1000);
            kill(rig->pid, SIGKILL);
            waitpid(rig->pid, NULL, 0);
            return;
        }
        sleep_ms(5);
    }
}

int rig_restart(const struct rig_options *options, struct rig *rig)
{
    char path[PATH_MAX];
    const int rc = find_daemon(options->daemon_path, path);
    if (rc != 0)
        return rc;
    if (rig->pid > 0)
        end_daemon(rig);
    rig->pid = 0;
    return run_server(rig, options, path);
}

void rig_stop(struct rig **rig)
{
    if (!rig || !*rig)
        return;
    if ((*rig)->pid > 0)
        end_daemon(*rig);
    current = NULL;
    if ((*rig)->dir[0])
        remove_directory((*rig)->dir);
    remove_store(*rig);
    free(*rig);
    *rig = NULL;
}
