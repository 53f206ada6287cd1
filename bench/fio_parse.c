/* SPDX-License-Identifier: Apache-2.0 */
/* Takes rate, bytes and processor time out of fio's JSON report. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "fio.h"

static double fio_parse_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

int fio_parse(const char *text, const char *rw, struct fio_result *ret_result)
{
    const char *begin = strchr(text, '{');
    json_t *report = begin ? json_loads(begin, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *job = json_array_get(json_object_get(report, "jobs"), 0);
    const json_t *way = json_object_get(job, strstr(rw, "read") ? "read" : "write");
    double bytes = fio_parse_number(way, "io_bytes"), rate = fio_parse_number(way, "bw_bytes");
    double cpu = fio_parse_number(job, "usr_cpu") +
                 fio_parse_number(job, "sys_cpu"); /* per cent of the run time */
    double seconds = fio_parse_number(way, "runtime") * 1e-3;
    bool good = job && !(fio_parse_number(job, "error") > 0) && bytes > 0 && rate > 0;
    json_decref(report);
    if (!good)
        return -EINVAL;
    ret_result->bytes_per_s = rate;
    ret_result->cpu_s_per_gb = cpu / 100 * seconds / (bytes / 1e9);
    return 0;
}
