/* workspace.c: memory that grows with the largest batch. */
#include "common/error.h"
#include "stages/lib/embed/workspace.h"

#include <stdlib.h>

bool pst_embed_grow(struct buffer *b, int64_t count, size_t size)
{
    const size_t bytes = ((size_t)count + 1) * size;
    if (bytes <= b->bytes)
        return true;
    free(b->at);
    *b = (struct buffer){
        aligned_alloc(PST_CACHE_LINE, (bytes + PST_CACHE_LINE - 1) / PST_CACHE_LINE * PST_CACHE_LINE), bytes};
    if (!b->at)
        b->bytes = 0;
    return b->at;
}

pst_rc pst_embed_workspace_new(struct pst_embed_workspace **made, int threads)
{
    struct pst_embed_workspace *w = calloc(1, sizeof *w);
    *made = NULL;
    if (!w)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot make a workspace for embeddings");
    const pst_rc rc = pst_team_new(&w->team, threads);
    if (rc != PST_OK) {
        free(w);
        return rc;
    }
    *made = w;
    return PST_OK;
}

enum { BUFFERS = sizeof(struct scratch) / sizeof(struct buffer) };

void pst_embed_workspace_free(struct pst_embed_workspace *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->team->threads; i++) {
        struct scratch *s = &w->scratch[i];
        struct buffer *all[BUFFERS] = {&s->x,      &s->xt,   &s->scores, &s->g,    &s->q,    &s->dq,
                                       &s->anchor, &s->keep, &s->f,      &s->tops, &s->sums, &s->first};
        for (size_t k = 0; k < BUFFERS; k++)
            free(all[k]->at);
    }
    pst_team_free(w->team);
    free(w->vertex_entries.at);
    free(w->relation_entries.at);
    free(w->start.at);
    free(w->entry.at);
    free(w->row.at);
    free(w->losses.at);
    free(w);
}
