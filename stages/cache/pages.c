/* pages.c: lines that are pages of several rows: the model of a memory mapping, whose page cache is the
 * lines. A page is touched once a batch, as the threads of a batch touch its pages in no fixed order. */
#include <string.h>

#include "common/store/dataset/rows.h"
#include "stages/cache/cache.h"

pst_rc pst_cache_stage_size_pages(struct cache *c)
{
    const uint64_t stride = c->ds.stride_bytes, page = c->page_bytes;
    c->line_rows = 1;
    c->line_bytes = stride;
    c->row_pages = 1;
    if (page == 0)
        return PST_OK;
    if (c->ds.vertex_types > 0)
        return pst_fail(
            PST_E_ARG,
            "page_bytes is %llu, but the vertices of the dataset %s have types, whose rows are in "
            "files of their own: leave page_bytes at 0",
            (unsigned long long)page, c->ds.dir);
    if (page % PST_PAGE != 0 || (stride % page != 0 && page % stride != 0))
        return pst_fail(
            PST_E_ARG,
            "page_bytes is %llu and feature rows take %llu bytes; expected pages of a multiple of %d "
            "bytes that hold whole rows, or rows that fill whole pages; `penstock convert` can change "
            "the stride of rows",
            (unsigned long long)page, (unsigned long long)stride, PST_PAGE);
    if (c->kind == PST_POLICY_STATIC || c->kind == PST_POLICY_LOOKAHEAD)
        return pst_fail(PST_E_ARG,
                        "policy %s keeps rows by their hotness; expected another one with page_bytes",
                        pst_policy_name(c->kind));
    if (page >= stride) {
        c->line_rows = (int64_t)(page / stride);
        c->line_bytes = page;
    } else {
        c->row_pages = stride / page;
    }
    return PST_OK;
}

/* The place of a page in the table of this batch's pages. */
static struct cache_page *place_of(const struct cache *c, int64_t page)
{
    const uint64_t last = c->page_places - 1;
    uint64_t at = ((uint64_t)page * UINT64_C(0x9E3779B97F4A7C15) >> 32) & last;
    while (c->pages[at].turn == c->turn && c->pages[at].page != page)
        at = (at + 1) & last;
    return &c->pages[at];
}

int64_t pst_cache_stage_units(struct cache *c, int64_t rows)
{
    int64_t n = 0;
    if (c->line_rows == 1) {
        c->unit = c->rest;
        return rows;
    }
    c->turn++;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t page = c->rest[i] / c->line_rows;
        struct cache_page *place = place_of(c, page);
        if (place->turn != c->turn) {
            *place = (struct cache_page){.page = page, .turn = c->turn, .unit = (int32_t)n};
            c->unit_at[n] = c->rest_at[i];
            c->page[n++] = page;
        }
        c->unit_of[i] = place->unit;
    }
    c->unit = c->page;
    return n;
}

struct pst_request pst_cache_stage_page_request(const struct cache *c, int64_t page, uint64_t fault)
{
    const int64_t first = page * c->line_rows, left = c->ds.vertices - first;
    return (struct pst_request){.op = PST_REQUEST_READ,
                                .array = PST_ARRAY_FEATURES,
                                .rows = (uint32_t)pst_min_i64(c->line_rows, left),
                                .row = (uint64_t)first,
                                .offset = c->pages_at + fault * c->line_bytes,
                                .tag = (uint64_t)first};
}

void pst_cache_stage_note_rows(const struct cache *c, struct cache_job *job, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++) {
        const int32_t unit = c->unit_of[i], within = (int32_t)(c->rest[i] % c->line_rows);
        const bool hit = c->hit[unit] >= 0;
        int32_t *at = hit ? &job->hit_at[job->hits] : &job->fresh_at[job->fresh];
        int32_t *from = hit ? &job->hit_line[job->hits++] : &job->fresh_from[job->fresh++];
        *at = c->rest_at[i];
        *from = (hit ? c->hit[unit] : c->fault[unit]) * (int32_t)c->line_rows + within;
    }
}
