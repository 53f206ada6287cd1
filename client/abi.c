/* SPDX-License-Identifier: Apache-2.0 */
/* Refuses a caller that was compiled with other structs than those of this library. */
#include <stdio.h>
#include <string.h>

#include "client.h"

static const struct kvc_abi structs[] = {KVC_ABI_STRUCTS, KVC_ABI_ASYNC, KVC_ABI_ADMIN,
                                         KVC_ABI_GPU};

const char *kvc_version(void)
{
    return KVC_API_VERSION;
}

static const struct kvc_abi *abi_find(const char *name)
{
    for (size_t i = 0; i < sizeof(structs) / sizeof(structs[0]); i++) {
        if (strcmp(structs[i].name, name) == 0)
            return &structs[i];
    }
    return NULL;
}

const char *kvc_abi(const char *version, const struct kvc_abi *abi, size_t n)
{
    static _Thread_local char text[256];
    for (size_t i = 0; i < n; i++) {
        const struct kvc_abi *own = abi_find(abi[i].name);
        if (own != NULL && own->bytes == abi[i].bytes)
            continue;
        if (own == NULL)
            (void)snprintf(text, sizeof(text), "struct %.100s is not known to libkvcache %s",
                           abi[i].name, KVC_API_VERSION);
        else
            (void)snprintf(text, sizeof(text),
                           "struct %s has %zu bytes in libkvcache %s, and %zu in the caller",
                           own->name, own->bytes, KVC_API_VERSION, abi[i].bytes);
        return text;
    }
    if (strcmp(version, KVC_API_VERSION) == 0)
        return NULL;
    (void)snprintf(text, sizeof(text), "the caller is for libkvcache %.100s, and this is %s",
                   version, KVC_API_VERSION);
    return text;
}
