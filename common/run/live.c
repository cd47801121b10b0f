/* live.c: RUN/live.json. */
#include "common/run/live.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/run/report.h"

static void live_path(const char *run_dir, char out[4200])
{
    (void)snprintf(out, 4200, "%.4096s/live.json", run_dir);
}

pst_rc pst_live_write(const char *run_dir, const char *board_path, uint64_t board_bytes, uint64_t pages_at,
                      const char *const *names, const struct pst_run_part *parts, int n,
                      double bus_bytes_per_s)
{
    char path[4200];
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, json_pack("{ss ss si sb sb}", "name", names[i], "stage",
                                                    parts[i].stage, "worker", (int)parts[i].worker, "streams",
                                                    (int)parts[i].streams, "by_turn", (int)parts[i].by_turn));
    json_t *j =
        json_pack("{ss sI sI sf so}", "board", board_path, "bytes", (json_int_t)board_bytes, "pages_at",
                  (json_int_t)pages_at, "bus_bytes_per_s", bus_bytes_per_s, "instances", list);
    if (!j)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate live.json");
    live_path(run_dir, path);
    pst_rc rc = pst_report_write_json(j, path);
    json_decref(j);
    return rc;
}

void pst_live_forget(const char *run_dir)
{
    char path[4200];
    live_path(run_dir, path);
    (void)unlink(path);
}

static void read_part(struct pst_live *live, size_t i, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const char *stage = json_string_value(json_object_get(j, "stage"));
    const json_int_t worker = json_integer_value(json_object_get(j, "worker"));
    struct pst_run_part *part = &live->parts[i];
    (void)snprintf(live->names[i], sizeof live->names[i], "%s", name ? name : "?");
    (void)snprintf(part->stage, sizeof part->stage, "%s", stage ? stage : live->names[i]);
    part->worker =
        worker >= PST_RUN_CPU && worker <= PST_RUN_COPY ? (enum pst_run_worker)worker : PST_RUN_CPU;
    part->streams = json_is_true(json_object_get(j, "streams"));
    part->by_turn = json_is_true(json_object_get(j, "by_turn"));
}

pst_rc pst_live_open(struct pst_live *live, const char *run_dir)
{
    memset(live, 0, sizeof *live);
    char path[4200];
    live_path(run_dir, path);
    json_error_t error;
    json_t *j = json_load_file(path, 0, &error);
    if (!j)
        return pst_fail(PST_E_STATE, "%s: %s: no run is active in this directory", path, error.text);
    const char *board = json_string_value(json_object_get(j, "board"));
    json_int_t bytes = json_integer_value(json_object_get(j, "bytes"));
    json_int_t pages_at = json_integer_value(json_object_get(j, "pages_at"));
    const json_t *instances = json_object_get(j, "instances");
    size_t n = json_array_size(instances);
    pst_rc rc = PST_OK;
    if (!board || bytes <= 0 || pages_at < 0 || n > PST_STAGES_MAX ||
        pages_at + (json_int_t)n * PST_PAGE > bytes)
        rc = pst_fail(PST_E_FORMAT, "%s was not written by this version of `penstock run`", path);
    for (size_t i = 0; i < n && rc == PST_OK; i++)
        read_part(live, i, json_array_get(instances, i));
    if (rc == PST_OK && pst_region_map(&live->map, board, (uint64_t)bytes) != PST_OK)
        rc = pst_fail(PST_E_STATE, "%s: the run in this directory has ended", run_dir);
    if (rc == PST_OK && ((const struct pst_board *)live->map.base)->magic != PST_BOARD_MAGIC)
        rc = pst_fail(PST_E_FORMAT, "%s: the shared memory %s does not belong to this run", run_dir, board);
    live->n = (int)n;
    live->pages_at = (uint64_t)pages_at;
    live->bus_bytes_per_s = json_number_value(json_object_get(j, "bus_bytes_per_s"));
    json_decref(j);
    if (rc != PST_OK)
        pst_region_unmap(&live->map);
    return rc;
}

void pst_live_close(struct pst_live *live)
{
    pst_region_unmap(&live->map);
}

const struct pst_board *pst_live_board(const struct pst_live *live)
{
    return live->map.base;
}

const struct pst_page *pst_live_page(const struct pst_live *live, int i)
{
    return (const struct pst_page *)(const void *)((const char *)live->map.base + live->pages_at +
                                                   (uint64_t)i * PST_PAGE);
}
