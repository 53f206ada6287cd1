/* SPDX-License-Identifier: Apache-2.0 */
#include "thread.h"

#include <signal.h>
#include <string.h>

#include "fault.h"

int thread_start(const char *name, void *(*main)(void *arg), void *arg, pthread_t *ret_thread)
{
    pthread_t thread;
    char short_name[16] = {0};
    sigset_t all;
    sigset_t before;
    if (FAULT(thread))
        return -EAGAIN;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int err = pthread_create(&thread, NULL, main, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0)
        return -err;
    memcpy(short_name, name, MIN(strlen(name), sizeof short_name - 1));
    (void)pthread_setname_np(thread, short_name);
    *ret_thread = thread;
    return 0;
}
