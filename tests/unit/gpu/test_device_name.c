/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cases.h"
#include "device_name.h"

static const uint8_t uuid[DEVICE_UUID_BYTES] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                                                0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};

static struct device_name parsed(const char *text)
{
    struct device_name name = {0};
    ck_assert_msg(device_name_parse(text, &name), "'%s'", text);
    return name;
}

CASE(numbers_are_of_32_bits)
{
    ck_assert_int_eq(parsed("emu:0").kind, DEVICE_NAME_EMULATED);
    ck_assert_uint_eq(parsed("emu:4294967295").number, UINT32_MAX);
    ck_assert_int_eq(parsed("cuda:7").kind, DEVICE_NAME_ORDINAL);
    ck_assert_uint_eq(parsed("cuda:007").number, 7);
}

CASE_EACH(a_uuid_is_of_a_device_or_an_instance_in_digits_of_either_case, 3)
{
    static const char *const texts[] = {"GPU-01234567-89ab-cdef-fedc-ba9876543210",
                                        "MIG-01234567-89ab-cdef-fedc-ba9876543210",
                                        "GPU-01234567-89AB-CDEF-FEDC-BA9876543210"};
    const struct device_name name = parsed(texts[_i]);
    ck_assert_int_eq(name.kind, DEVICE_NAME_UUID);
    ck_assert_mem_eq(name.uuid, uuid, sizeof(uuid));
}

CASE(what_is_no_name_is_refused)
{
    static const char *const texts[] = {"",
                                        "host",
                                        "gpu0",
                                        "emu",
                                        "emu:",
                                        "emu:x",
                                        "emu:4294967296",
                                        "cuda:",
                                        "cuda:-1",
                                        "cuda:+1",
                                        "cuda:0 ",
                                        "cuda:99999999999999999999",
                                        "GPU-",
                                        "GPU-01234567-89ab-cdef-fedc-ba987654321",
                                        "GPU-01234567-89ab-cdef-fedc-ba98765432100",
                                        "GPU-01234567-89ab-cdef-fedc-ba987654321g",
                                        "GPU-0123456789ab-cdef-fedc-ba9876543210---",
                                        "GPU-01234567089ab-cdef-fedc-ba987654321",
                                        "MIG-GPU-01234567-89ab-cdef-fedc-ba9876543210/1/0"};
    struct device_name name;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        ck_assert_msg(!device_name_parse(texts[i], &name), "'%s'", texts[i]);
}

CASE(a_uuid_is_printed_as_it_is_read)
{
    char text[DEVICE_NAME_BYTES];
    device_name_print(uuid, false, text);
    ck_assert_str_eq(text, "GPU-01234567-89ab-cdef-fedc-ba9876543210");
    ck_assert_mem_eq(parsed(text).uuid, uuid, sizeof(uuid));
}

/* A device that says it is emulated, and has another's UUID, is shown by that. */
CASE(an_emulated_device_is_printed_by_the_number_in_its_uuid)
{
    static const uint8_t want[DEVICE_UUID_BYTES] = "kvc-emu\0\0\0\0\0\x01\x02\x03\x04";
    uint8_t made[DEVICE_UUID_BYTES];
    char text[DEVICE_NAME_BYTES];
    device_name_emu_uuid(0x01020304, made);
    ck_assert_mem_eq(made, want, sizeof(want));
    device_name_print(made, true, text);
    ck_assert_str_eq(text, "emu:16909060");
    device_name_print(made, false, text);
    ck_assert_str_eq(text, "GPU-6b76632d-656d-7500-0000-000001020304");
    device_name_print(uuid, true, text);
    ck_assert_str_eq(text, "GPU-01234567-89ab-cdef-fedc-ba9876543210");
}
