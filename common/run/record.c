/* record.c: what a report says about the run itself: command, program, host, stages and their parameters; and
 * the epochs of a run that has no report yet. */
#include "common/run/report.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "common/error.h"
#include "common/pipeline/pipeline.h"
#include "common/util/file.h"

static json_t *host_record(void)
{
    struct utsname name;
    if (uname(&name) != 0)
        return json_object();
    return json_pack("{so ss ss sI sI}", "name", pst_report_text(name.nodename), "kernel", name.release,
                     "machine", name.machine, "cpus", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN),
                     "memory_bytes", (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

/* A stage that is built into the runtime has no file. */
static json_t *stage_record(const struct pst_pipeline_stage_spec *stage)
{
    char digest[PST_FILE_DIGEST_BYTES];
    json_t *j = json_pack("{ss so}", "run", stage->caps.desc->name, "params", json_deep_copy(stage->params));
    if (stage->caps.file == NULL)
        return j;
    (void)json_object_set_new(j, "file", pst_report_text(stage->caps.file));
    (void)json_object_set_new(
        j, "digest", pst_file_digest(stage->caps.file, digest) == PST_OK ? json_string(digest) : json_null());
    return j;
}

json_t *pst_report_record(const struct pst_pipeline *pl, const char *version, const char *commit,
                          const char *const *command)
{
    char started[32], directory[PST_PATH_MAX];
    struct tm tm;
    const time_t now = time(NULL);
    json_t *words = json_array(), *stages = json_object();
    (void)strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    for (size_t i = 0; command[i] != NULL; i++)
        (void)json_array_append_new(words, pst_report_text(command[i]));
    for (int s = 0; s < pl->nstages; s++)
        (void)json_object_set_new(stages, pl->stages[s].name, stage_record(&pl->stages[s]));
    if (getcwd(directory, sizeof directory) == NULL)
        directory[0] = '\0';
    return json_pack("{si ss ss* ss so so so so}", "schema", PST_REPORT_SCHEMA, "version", version, "commit",
                     commit[0] ? commit : NULL, "started", started, "command", words, "directory",
                     pst_report_text(directory), "host", host_record(), "stages", stages);
}

void pst_report_add_record(json_t *report, const json_t *record)
{
    const json_t *specs = json_object_get(record, "stages");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)record, key, value)
    {
        if (value != specs)
            (void)json_object_set(report, key, value);
    }
    json_object_foreach(json_object_get(report, "stages"), key, value)
    {
        const json_t *spec = json_object_getn(specs, key, strcspn(key, ".")); /* "sampler.1" is of sampler */
        if (spec != NULL)
            (void)json_object_update_missing(value, (json_t *)(uintptr_t)spec);
    }
}

/* Ends what a run that was killed, or a full disk, left of a line. */
static bool ends_in_a_line(int fd)
{
    char last = '\n';
    const off_t end = lseek(fd, 0, SEEK_END);
    return end <= 0 || pread(fd, &last, 1, end - 1) != 1 || last == '\n';
}

pst_rc pst_report_note_epoch(const char *run_dir, const json_t *row)
{
    char path[PST_PATH_MAX + 32];
    struct timespec now;
    (void)snprintf(path, sizeof path, "%s/" PST_REPORT_EPOCHS, run_dir);
    (void)clock_gettime(CLOCK_REALTIME, &now);
    char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(PST_REPORT_DIGITS));
    const int fd = text ? open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    const char *comma = json_object_size(row) > 0 ? "," : "";
    pst_rc rc = PST_OK;
    if (!text)
        rc = pst_fail(PST_E_NOMEM, "out of memory: " PST_REPORT_EPOCHS " is not written");
    else if (fd < 0 ||
             dprintf(fd, "%s%.*s%s\"ended\":%lld.%03ld}\n", ends_in_a_line(fd) ? "" : "\n",
                     (int)strlen(text) - 1, text, comma, (long long)now.tv_sec, now.tv_nsec / 1000000) < 0)
        rc = pst_fail_errno("cannot write %s", path);
    if (fd >= 0)
        (void)close(fd);
    free(text);
    return rc;
}
