/* SPDX-License-Identifier: Apache-2.0 */
#include "pause.h"

#include <time.h>

#define FIRST_MS 20u
#define MOST_MS  1000u

bool pause_again(struct pause *p, uint32_t limit_ms)
{
    if (p->waited_ms >= limit_ms)
        return false;
    p->ms = p->ms == 0 ? FIRST_MS : p->ms < MOST_MS / 2 ? 2 * p->ms : MOST_MS;
    p->waited_ms += p->ms;
    const struct timespec t = {.tv_sec = p->ms / 1000, .tv_nsec = (long)(p->ms % 1000) * 1000000};
    nanosleep(&t, NULL);
    return true;
}
