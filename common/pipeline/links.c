/* links.c: links one by one, and the loops that they make. */
#include <stdarg.h>
#include <string.h>

#include "common/pipeline/desc/desc.h"
#include "common/pipeline/graph_impl.h"
#include "common/pipeline/place.h"

#define STAGES_MAX (PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX) /* with the copies that the runtime inserts */

const struct pst_port_desc *pst_link_from(const struct pst_pipeline *pl, const struct pst_link_spec *link)
{
    return &pl->stages[link->from].caps.desc->ports[link->from_port];
}

const struct pst_port_desc *pst_link_to(const struct pst_pipeline *pl, const struct pst_link_spec *link)
{
    return &pl->stages[link->to].caps.desc->ports[link->to_port];
}

bool pst_link_oneshot(const struct pst_pipeline *pl, const struct pst_link_spec *link)
{
    return (pst_link_from(pl, link)->flags & PST_PORT_ONESHOT) != 0;
}

void pst_link_error(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_link_spec *link,
                    const char *member, const char *fmt, ...)
{
    char text[900], path[64];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snprintf(path, sizeof path, "links[%d]%s", link->index, member);
    pst_json_error(&pl->doc, diag, path, "%s", text);
}

/* ---- links one by one ------------------------------------------------------------------------ */

static bool same_or_any(const char *a, const char *b)
{
    return !a || !b || strcmp(a, "any") == 0 || strcmp(b, "any") == 0 || strcmp(a, b) == 0;
}

static void check_memory(const struct pst_pipeline *pl, struct pst_diag *diag,
                         const struct pst_link_spec *link, const char *member, int stage,
                         const struct pst_port_desc *port)
{
    if (strncmp(pl->stages[stage].device, "cpu:", 4) == 0 && !pst_desc_list_has(port->memory, ',', "cpu"))
        pst_link_error(pl, diag, link, member, "%s.%s cannot use cpu memory: it accepts %s",
                       pl->stages[stage].name, port->name, port->memory);
}

static void check_types(const struct pst_pipeline *pl, struct pst_diag *diag,
                        const struct pst_link_spec *link)
{
    const struct pst_port_desc *out = pst_link_from(pl, link), *in = pst_link_to(pl, link);
    const char *from = pl->stages[link->from].name, *to = pl->stages[link->to].name;
    if (!same_or_any(out->type, in->type))
        pst_link_error(pl, diag, link, "", "%s.%s carries %s, but %s.%s expects %s", from, out->name,
                       out->type, to, in->name, in->type);
    else if (!same_or_any(out->dtype, in->dtype))
        pst_link_error(pl, diag, link, "", "%s.%s carries %s elements, but %s.%s expects %s", from, out->name,
                       out->dtype, to, in->name, in->dtype);
    else if (out->rank >= 0 && in->rank >= 0 && out->rank != in->rank)
        pst_link_error(pl, diag, link, "", "%s.%s carries %d dimensions, but %s.%s expects %d", from,
                       out->name, out->rank, to, in->name, in->rank);
}

/* Against the links before it. */
static void check_repeated(const struct pst_pipeline *pl, struct pst_diag *diag,
                           const struct pst_link_spec *link)
{
    bool told = false;
    for (const struct pst_link_spec *other = pl->links; other < link; other++) {
        if (other->to == link->to && other->to_port == link->to_port && !told)
            pst_link_error(pl, diag, link, ".to", "%s.%s is already linked by links[%d]",
                           pl->stages[link->to].name, pst_link_to(pl, link)->name, other->index);
        told = told || (other->to == link->to && other->to_port == link->to_port);
        if (other->slots && link->slots && other->from == link->from && other->from_port == link->from_port &&
            other->slots != link->slots)
            pst_link_error(pl, diag, link, ".slots",
                           "links[%d] carries the same slots, and sets their number to %d: set the same "
                           "number on both links, or on only one",
                           other->index, other->slots);
    }
}

static void check_link(const struct pst_pipeline *pl, struct pst_diag *diag, const struct pst_link_spec *link)
{
    const struct pst_port_desc *out = pst_link_from(pl, link), *in = pst_link_to(pl, link);
    const char *from = pl->stages[link->from].name, *to = pl->stages[link->to].name;
    if ((out->flags & PST_PORT_ONESHOT) != (in->flags & PST_PORT_ONESHOT)) {
        const bool one = (out->flags & PST_PORT_ONESHOT) != 0;
        pst_link_error(
            pl, diag, link, "",
            "%s.%s is %s, but %s.%s is %s: an output can be linked only to an input of the same kind", from,
            out->name, one ? "one-shot" : "a stream", to, in->name, one ? "a stream" : "one-shot");
        return;
    }
    check_types(pl, diag, link);
    check_memory(pl, diag, link, ".from", link->from, out);
    check_memory(pl, diag, link, ".to", link->to, in);
    if (link->slots && out->forwards)
        pst_link_error(pl, diag, link, ".slots",
                       "%s.%s forwards the slots of its input, so \"slots\" cannot be set here: set it on "
                       "the link where the slots originate",
                       from, out->name);
    else if (link->slots && (out->flags & PST_PORT_ONESHOT))
        pst_link_error(pl, diag, link, ".slots",
                       "%s.%s is one-shot and has no slots, so \"slots\" cannot be set here", from,
                       out->name);
    check_repeated(pl, diag, link);
}

static void check_unlinked(const struct pst_pipeline *pl, struct pst_diag *diag, int s)
{
    const struct pst_stage_desc *desc = pl->stages[s].caps.desc;
    const int missing = pst_place_missing_port(&pl->stages[s]);
    for (int p = 0; p < pst_desc_ports(desc); p++) {
        const struct pst_port_desc *port = &desc->ports[p];
        bool linked = (pl->stages[s].linked >> p & 1) != 0;
        char path[PST_JSON_PATH_MAX];
        (void)snprintf(path, sizeof path, "stages.%s", pl->stages[s].name);
        if (p == missing)
            pst_json_error(&pl->doc, diag, path,
                           "%s \"%s\" is not linked (%s), but a stage on %s needs this: link it to a stage "
                           "that can share slots in the memory of %s (the same GPU, or one that reaches it), "
                           "or place %s on a CPU",
                           port->dir == PST_IN ? "input" : "output", port->name, port->help,
                           pl->stages[s].device, pl->stages[s].device, pl->stages[s].name);
        if (linked || (port->flags & (PST_PORT_OPTIONAL | (port->dir == PST_OUT ? PST_PORT_ONESHOT : 0))))
            continue;
        pst_json_error(&pl->doc, diag, path, "%s \"%s\" is not linked (%s)",
                       port->dir == PST_IN ? "input" : "output", port->name, port->help);
    }
}

/* ---- loops ----------------------------------------------------------------------------------- */

enum mark { UNSEEN, ON_THE_WAY, DONE };

/* Depth first, without back links. */
static void visit(const struct pst_pipeline *pl, struct pst_diag *diag, int s, enum mark *marks)
{
    marks[s] = ON_THE_WAY;
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        if (link->from != s || link->back)
            continue;
        if (marks[link->to] == ON_THE_WAY)
            pst_link_error(pl, diag, link, "",
                           "this link closes a loop from %s back to %s: add \"back\": true if %s can "
                           "continue without waiting for this link",
                           pl->stages[s].name, pl->stages[link->to].name, pl->stages[link->to].name);
        else if (marks[link->to] == UNSEEN)
            visit(pl, diag, link->to, marks);
    }
    marks[s] = DONE;
}

bool pst_link_leads(const struct pst_pipeline *pl, int from, int to)
{
    bool seen[STAGES_MAX] = {false};
    int queue[STAGES_MAX], n = 0;
    queue[n++] = from;
    seen[from] = true;
    for (int i = 0; i < n; i++) {
        if (queue[i] == to)
            return true;
        for (int l = 0; l < pl->nlinks; l++) {
            const struct pst_link_spec *link = &pl->links[l];
            if (link->from != queue[i] || link->back || seen[link->to])
                continue;
            seen[link->to] = true;
            queue[n++] = link->to;
        }
    }
    return false;
}

static void check_loops(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    enum mark marks[STAGES_MAX] = {UNSEEN};
    size_t before = diag->count;
    for (int s = 0; s < pl->nstages; s++)
        if (marks[s] == UNSEEN)
            visit(pl, diag, s, marks);
    if (diag->count > before)
        return;
    for (int l = 0; l < pl->nlinks; l++)
        if (pl->links[l].back && !pst_link_leads(pl, pl->links[l].to, pl->links[l].from))
            pst_link_error(pl, diag, &pl->links[l], ".back",
                           "this link does not close a loop, so \"back\" must not be true");
}

void pst_link_check_all(const struct pst_pipeline *pl, struct pst_diag *diag)
{
    for (int l = 0; l < pl->nlinks; l++)
        check_link(pl, diag, &pl->links[l]);
    for (int s = 0; s < pl->nstages; s++)
        check_unlinked(pl, diag, s);
    check_loops(pl, diag);
}
