/* SPDX-License-Identifier: Apache-2.0 */
#include "err.h"

#include <string.h>

const char *err_name(int err)
{
    switch (err) {
    case 0:
        return "OK";
#define X(value, name, text) \
    case -(1000 + (value)):  \
        return "KVC_E_" #name;
        KVC_STATUS_MAP(X)
#undef X
    case KVC_STALE:
        return "KVC_STALE";
    case KVC_E_DOWN:
        return "KVC_E_DOWN";
    case KVC_E_NO_ROOM:
        return "KVC_E_NO_ROOM";
    default:
        break;
    }
    const char *name = err > -1000 ? strerrorname_np(err < 0 ? -err : err) : NULL;
    return name != NULL ? name : "unknown error";
}
