/* requests.c: follows requests from the outputs that make them, over every link, to where they are served. */
#include <stdio.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"
#include "common/pipeline/graph_impl.h"

/* Where a search is: the links that it came over, from the output that makes requests. */
struct search {
    const struct pst_pipeline *pl;
    struct pst_diag *diag;
    bool seen[2 * PST_PIPELINE_LINKS_MAX]; /* links that unserved requests pass */
    const struct pst_link_spec *way[2 * PST_PIPELINE_LINKS_MAX];
    int steps;
};

/* "sampler -> walker -> trainer": the stages on the way. */
static void way_text(const struct search *s, char *out, size_t bytes)
{
    size_t n = (size_t)snprintf(out, bytes, "%s", s->pl->stages[s->way[0]->from].name);
    for (int i = 0; i < s->steps && n < bytes; i++)
        n += (size_t)snprintf(out + n, bytes - n, " -> %s", s->pl->stages[s->way[i]->to].name);
}

static void refuse(const struct search *s, const struct pst_link_spec *link)
{
    const struct pst_pipeline *pl = s->pl;
    const struct pst_link_spec *first = s->way[0];
    char way[300];
    way_text(s, way, sizeof way);
    pst_link_error(pl, s->diag, link, ".to",
                   "%s.%s needs data that %s.%s requests, but no stage between them reads it (%s): link a "
                   "stage that serves requests, for example disk, between them",
                   pl->stages[link->to].name, pst_link_to(pl, link)->name, pl->stages[first->from].name,
                   pst_link_from(pl, first)->name, way);
}

/* Follows unserved requests that leave a stage by a port. */
static void follow(struct search *s, int stage, int port)
{
    const struct pst_pipeline *pl = s->pl;
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        if (link->from != stage || link->from_port != port || s->seen[l])
            continue;
        s->seen[l] = true;
        s->way[s->steps++] = link;
        const struct pst_stage_desc *desc = pl->stages[link->to].caps.desc;
        const struct pst_port_desc *in = &desc->ports[link->to_port];
        if (in->requests == PST_REQUESTS_NEEDS)
            refuse(s, link);
        for (int p = 0; p < pst_desc_ports(desc) && in->requests != PST_REQUESTS_SERVES; p++)
            if (desc->ports[p].dir == PST_OUT && (pst_desc_forwards(&desc->ports[p], in->name) ||
                                                  desc->ports[p].requests == PST_REQUESTS_COPIES))
                follow(s, link->to, p);
        s->steps--;
    }
}

void pst_graph_check_requests(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    struct search s = {.pl = pl, .diag = diag};
    for (int stage = 0; stage < pl->nstages; stage++) {
        const struct pst_stage_desc *desc = pl->stages[stage].caps.desc;
        for (int p = 0; p < pst_desc_ports(desc); p++)
            if (desc->ports[p].requests == PST_REQUESTS_MAKES)
                follow(&s, stage, p);
    }
}
