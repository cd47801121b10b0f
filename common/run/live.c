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
                      const char *const *names, int n)
{
    char path[4200];
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        (void)json_array_append_new(list, json_string(names[i]));
    json_t *j = json_pack("{ss sI sI so}", "board", board_path, "bytes", (json_int_t)board_bytes, "pages_at",
                          (json_int_t)pages_at, "instances", list);
    if (!j)
        return pst_fail(PST_E_NOMEM, "out of memory for live.json");
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

pst_rc pst_live_open(struct pst_live *live, const char *run_dir)
{
    memset(live, 0, sizeof *live);
    char path[4200];
    live_path(run_dir, path);
    json_error_t error;
    json_t *j = json_load_file(path, 0, &error);
    if (!j)
        return pst_fail(PST_E_STATE, "%s: %s: no run is going there", path, error.text);
    const char *board = json_string_value(json_object_get(j, "board"));
    json_int_t bytes = json_integer_value(json_object_get(j, "bytes"));
    json_int_t pages_at = json_integer_value(json_object_get(j, "pages_at"));
    const json_t *names = json_object_get(j, "instances");
    size_t n = json_array_size(names);
    pst_rc rc = PST_OK;
    if (!board || bytes <= 0 || pages_at < 0 || n > PST_STAGES_MAX ||
        pages_at + (json_int_t)n * PST_PAGE > bytes)
        rc = pst_fail(PST_E_FORMAT, "%s: not what a supervisor writes", path);
    for (size_t i = 0; i < n && rc == PST_OK; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        (void)snprintf(live->names[i], sizeof live->names[i], "%s", name ? name : "?");
    }
    if (rc == PST_OK && pst_region_map(&live->map, board, (uint64_t)bytes) != PST_OK)
        rc = pst_fail(PST_E_STATE, "%s: no run is going there any more", run_dir);
    if (rc == PST_OK && ((const struct pst_board *)live->map.base)->magic != PST_BOARD_MAGIC)
        rc = pst_fail(PST_E_FORMAT, "%s: %s is no longer this run's memory", run_dir, board);
    live->n = (int)n;
    live->pages_at = (uint64_t)pages_at;
    json_decref(j);
    if (rc != PST_OK)
        pst_region_unmap(&live->map);
    return rc;
}

void pst_live_close(struct pst_live *live)
{
    pst_region_unmap(&live->map);
}

const struct pst_page *pst_live_page(const struct pst_live *live, int i)
{
    return (const struct pst_page *)(const void *)((const char *)live->map.base + live->pages_at +
                                                   (uint64_t)i * PST_PAGE);
}
