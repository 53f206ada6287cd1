/* SPDX-License-Identifier: Apache-2.0 */
#include "device_name.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "units.h"

static const char uuid_form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
/* An emulated device's UUID: this, then its number. */
static const uint8_t emu_prefix[DEVICE_UUID_BYTES - 4] = "kvc-emu";

static bool number_parse(const char *text, uint32_t *ret_number)
{
    uint64_t number;
    if (units_parse_count(text, &number, NULL) < 0 || number > UINT32_MAX)
        return false;
    *ret_number = (uint32_t)number;
    return true;
}

static int digit_of(char c)
{
    if (isdigit((unsigned char)c))
        return c - '0';
    return isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : -1;
}

static bool uuid_parse(const char *text, uint8_t ret_uuid[DEVICE_UUID_BYTES])
{
    unsigned digits = 0;
    if (strlen(text) != sizeof(uuid_form) - 1)
        return false;
    for (size_t i = 0; uuid_form[i] != '\0'; i++) {
        const int digit = digit_of(text[i]);
        if (uuid_form[i] == '-' ? text[i] != '-' : digit < 0)
            return false;
        if (uuid_form[i] == '-')
            continue;
        ret_uuid[digits / 2] = (uint8_t)(digits % 2 ? ret_uuid[digits / 2] | digit : digit << 4);
        digits++;
    }
    return true;
}

bool device_name_parse(const char *text, struct device_name *ret_name)
{
    if (strlen(text) >= DEVICE_NAME_BYTES)
        return false;
    *ret_name = (struct device_name){.kind = DEVICE_NAME_UUID};
    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        return uuid_parse(text + 4, ret_name->uuid);
    const bool is_emulated = strncmp(text, "emu:", 4) == 0;
    if (!is_emulated && strncmp(text, "cuda:", 5) != 0)
        return false;
    ret_name->kind = is_emulated ? DEVICE_NAME_EMULATED : DEVICE_NAME_ORDINAL;
    return number_parse(strchr(text, ':') + 1, &ret_name->number);
}

void device_name_print(const uint8_t uuid[DEVICE_UUID_BYTES], bool is_emulated,
                       char ret_text[DEVICE_NAME_BYTES])
{
    static const char hex[] = "0123456789abcdef";
    unsigned digits = 0;
    if (is_emulated && memcmp(uuid, emu_prefix, sizeof(emu_prefix)) == 0) {
        uint32_t number = 0;
        for (unsigned i = 0; i < 4; i++)
            number = number << 8 | uuid[sizeof(emu_prefix) + i];
        (void)snprintf(ret_text, DEVICE_NAME_BYTES, "emu:%u", number);
        return;
    }
    memcpy(ret_text, "GPU-", 4);
    for (size_t i = 0; i < sizeof(uuid_form); i++) {
        if (uuid_form[i] != 'x') {
            ret_text[4 + i] = uuid_form[i]; /* a dash, or the end */
            continue;
        }
        const uint8_t byte = uuid[digits / 2];
        ret_text[4 + i] = hex[digits % 2 ? byte & 15 : byte >> 4];
        digits++;
    }
}

void device_name_emu_uuid(uint32_t number, uint8_t ret_uuid[DEVICE_UUID_BYTES])
{
    memcpy(ret_uuid, emu_prefix, sizeof(emu_prefix));
    for (unsigned i = 0; i < 4; i++)
        ret_uuid[sizeof(emu_prefix) + i] = (uint8_t)(number >> (24 - 8 * i));
}
