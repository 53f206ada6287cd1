/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of errors, and the text of a session's last error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client.h"

/* Errors of the library alone. */
static const struct {
    int error;
    const char *name, *text;
} OWN[] = {
    {KVC_STALE, "STALE", "what was read may have changed since: discard it"},
    {KVC_E_DOWN, "DOWN", "no daemon answers; lookups miss and stores are dropped until it does"},
    {KVC_E_NO_ROOM, "NO_ROOM", "no room before something is evicted"},
};

static bool is_status(int error)
{
    return error <= -1000 && error > -1000 - (int)KVC_ST_COUNT;
}

const char *kvc_error_name(int error)
{
    if (error >= 0)
        return "OK";
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (OWN[i].error == error)
            return OWN[i].name;
    }
    if (is_status(error))
        return codec_status_name((unsigned)(-error - 1000));
    const char *name = error > -1000 ? strerrorname_np(-error) : NULL;
    return name != NULL ? name : "?";
}

const char *kvc_error_text(int error)
{
    if (error >= 0)
        return "success";
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (OWN[i].error == error)
            return OWN[i].text;
    }
    if (is_status(error))
        return codec_status_text((unsigned)(-error - 1000));
    const char *text = error > -1000 ? strerrordesc_np(-error) : NULL;
    return text != NULL ? text : "unknown error";
}

const char *kvc_miss_name(unsigned reason)
{
    return codec_miss_name(reason);
}

const char *kvc_miss_text(unsigned reason)
{
    return codec_miss_text(reason);
}

/* ---- the last error of a session ---- */

int kvc__status_error(unsigned status)
{
    /* A later daemon may send a status that this version does not know: INTERNAL. */
    return status < KVC_ST_COUNT ? -(int)(1000 + status) : KVC_E_INTERNAL;
}

int kvc__fail(struct kvc *k, int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(k->error, sizeof(k->error), fmt, ap);
    va_end(ap);
    return error;
}
