/* draw.c: draws a pipeline: as text, as a flowchart for Mermaid or Graphviz, or as a picture (SVG). */
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/graph_impl.h"

#define LABEL_MAX 768

/* ---- what stands at a stage and at a link ---------------------------------------------------------- */

/* "sampler on cpu:0 (auto: ...) x2". */
static void stage_label(const struct pst_pipeline_stage_spec *stage, const char *run, char out[LABEL_MAX])
{
    char many[32] = "";
    if (stage->instances > 1)
        (void)snprintf(many, sizeof many, " x%d", stage->instances);
    (void)snprintf(out, LABEL_MAX, "%.200s on %s%s%s%s%s", run, stage->device,
                   stage->chosen[0] ? " (auto: " : "", stage->chosen, stage->chosen[0] ? ")" : "", many);
}

/* "route 0, 4 slots, pinned" for each route of the link. */
static void link_label(const struct pst_graph *graph, const struct pst_pipeline *pl,
                       const struct pst_link_spec *link, char out[LABEL_MAX])
{
    size_t used = 0;
    out[0] = '\0';
    for (int r = 0; r < graph->nroutes && used < LABEL_MAX; r++) {
        const struct pst_route *route = &graph->routes[r];
        if (!pst_link_carries(graph, r, pl, link))
            continue;
        used += (size_t)snprintf(out + used, LABEL_MAX - used, "%sroute %d, %d slots%s%s%s%s%s",
                                 used > 0 ? "; " : "", r, route->slots,
                                 route->memory == PST_ROUTE_PINNED ? ", pinned"
                                 : route->memory == PST_ROUTE_GPU  ? ", in "
                                                                   : "",
                                 route->memory == PST_ROUTE_GPU ? route->device : "",
                                 pst_route_is_reached(pl, route) ? " by peer access" : "",
                                 route->events ? ", by events" : "", route->copy_of >= 0 ? ", copied" : "");
    }
}

/* Links of the file that this placement does without, a line each, behind `prefix`. */
static void draw_left_out(const struct pst_pipeline *pl, const char *prefix, FILE *out)
{
    const json_t *links = json_object_get(pl->doc.root, "links");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        bool there = false;
        for (int l = 0; l < pl->nlinks; l++)
            there = there || pl->links[l].index == (int)i;
        if (!there)
            fprintf(out, "%snot used: links[%zu], %s to %s (when: %s)\n", prefix, i,
                    json_string_value(json_object_get(link, "from")),
                    json_string_value(json_object_get(link, "to")),
                    json_string_value(json_object_get(link, "when")));
    }
}

/* ---- text ------------------------------------------------------------------------------------------ */

static void draw_text(const struct pst_graph *graph, const struct pst_pipeline *pl, FILE *out)
{
    char label[LABEL_MAX], to[2 * PST_NAME_MAX + 2];
    fprintf(out, "%s\n", pl->name);
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
        stage_label(stage, stage->caps.run, label);
        fprintf(out, "  %-16s %s%s%s\n", stage->name, label, stage->group[0] ? ", group " : "", stage->group);
        for (int l = 0; l < pl->nlinks; l++) {
            const struct pst_link_spec *link = &pl->links[l];
            if (link->from != s)
                continue;
            const struct pst_pipeline_stage_spec *other = &pl->stages[link->to];
            (void)snprintf(to, sizeof to, "%s.%s", other->name, other->caps.desc->ports[link->to_port].name);
            link_label(graph, pl, link, label);
            const char *kind = pst_link_oneshot(pl, link) ? "once, before the batches"
                               : link->back               ? "back"
                                                          : "";
            fprintf(out, "    %-14s -> %-24s%s%s%s\n", pst_link_from(pl, link)->name, to, kind,
                    kind[0] && label[0] ? ", " : "", label);
        }
    }
    draw_left_out(pl, "  ", out);
}

/* ---- Mermaid --------------------------------------------------------------------------------------- */

static void draw_mermaid(const struct pst_graph *graph, const struct pst_pipeline *pl, FILE *out)
{
    char label[LABEL_MAX];
    fprintf(out, "flowchart LR\n");
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
        stage_label(stage, stage->caps.run, label);
        fprintf(out, "    s%d[\"%s<br/>%s%s%s\"]\n", s, stage->name, label,
                stage->group[0] ? "<br/>group " : "", stage->group);
    }
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        const char *arrow = pst_link_oneshot(pl, link) ? "-.->" : link->back ? "==>" : "-->";
        link_label(graph, pl, link, label);
        fprintf(out, "    s%d %s|\"%s%s%s%s%s\"| s%d\n", link->from, arrow, pst_link_from(pl, link)->name,
                label[0] ? " (" : "", label, label[0] ? ")" : "", link->back ? ", back" : "", link->to);
    }
    draw_left_out(pl, "    %% ", out);
    for (int r = 0; r < graph->nroutes; r++) {
        const struct pst_route *route = &graph->routes[r];
        fprintf(out, "    s%d -. \"route %d home\" .-> s%d\n", route->borrower_stage[route->borrowers - 1], r,
                route->stage);
    }
}

/* ---- Graphviz -------------------------------------------------------------------------------------- */

/* Text within quotes. */
static void put_quoted(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            (void)fputc('\\', out);
        (void)fputc(*text, out);
    }
}

static void draw_dot(const struct pst_graph *graph, const struct pst_pipeline *pl, FILE *out)
{
    char label[LABEL_MAX];
    fprintf(out, "digraph \"%s\" {\n  rankdir=LR;\n  node [shape=box, style=rounded];\n", pl->name);
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
        stage_label(stage, stage->caps.run, label);
        fprintf(out, "  s%d [label=\"%s\\n", s, stage->name);
        put_quoted(label, out);
        fprintf(out, "%s%s\"];\n", stage->group[0] ? "\\ngroup " : "", stage->group);
    }
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        link_label(graph, pl, link, label);
        fprintf(out, "  s%d -> s%d [label=\"%s%s", link->from, link->to, pst_link_from(pl, link)->name,
                label[0] ? "\\n" : "");
        put_quoted(label, out);
        fprintf(out, "\"%s];\n",
                pst_link_oneshot(pl, link) ? ", style=dashed"
                : link->back               ? ", style=bold, constraint=false"
                                           : "");
    }
    draw_left_out(pl, "  // ", out);
    fprintf(out, "}\n");
}

/* ---- SVG ------------------------------------------------------------------------------------------- */

#define BOX_H 66
#define GAP_Y 46
#define MARGIN 24
#define CHAR_W 7     /* at the size of a stage's text; a label's is smaller */
#define BOX_CHARS 44 /* more of a stage's text is cut */
#define BOXES_MAX (PST_STAGES_MAX + PST_PIPELINE_LINKS_MAX) /* with the copies between devices */

struct layout {
    int column[BOXES_MAX], row[BOXES_MAX];
    int columns, rows, box_w, gap_x;
};

static void put_xml(const char *text, FILE *out)
{
    for (; *text; text++)
        if (*text == '<' || *text == '>' || *text == '&')
            fputs(*text == '<' ? "&lt;" : *text == '>' ? "&gt;" : "&amp;", out);
        else
            (void)fputc(*text, out);
}

static const char *base_of(const char *run)
{
    const char *slash = strrchr(run, '/');
    return slash ? slash + 1 : run;
}

static int columns_of(size_t chars)
{
    return (int)(chars < BOX_CHARS ? chars : BOX_CHARS);
}

/* A stage stands one column behind those that it gets something from. */
static void lay_out(const struct pst_graph *graph, const struct pst_pipeline *pl, struct layout *at)
{
    char label[LABEL_MAX];
    int filled[BOXES_MAX] = {0}, box = 0, gap = 0;
    *at = (struct layout){0};
    for (int pass = 0; pass < pl->nstages; pass++)
        for (int l = 0; l < pl->nlinks; l++) {
            const struct pst_link_spec *link = &pl->links[l];
            if (!link->back && at->column[link->to] <= at->column[link->from] &&
                at->column[link->from] + 1 < pl->nstages)
                at->column[link->to] = at->column[link->from] + 1;
        }
    for (int s = 0; s < pl->nstages; s++) {
        stage_label(&pl->stages[s], base_of(pl->stages[s].caps.run), label);
        const int chars = columns_of(strlen(label)), name = columns_of(strlen(pl->stages[s].name));
        box = chars > box ? chars : name > box ? name : box;
        at->row[s] = filled[at->column[s]]++;
        at->columns = at->column[s] >= at->columns ? at->column[s] + 1 : at->columns;
        at->rows = at->row[s] >= at->rows ? at->row[s] + 1 : at->rows;
    }
    for (int l = 0; l < pl->nlinks; l++) {
        link_label(graph, pl, &pl->links[l], label);
        gap = columns_of(strlen(label)) > gap ? columns_of(strlen(label)) : gap;
    }
    at->box_w = box * CHAR_W + 20;
    at->gap_x = gap * (CHAR_W - 1) + 50;
}

static int left_of(const struct layout *at, int stage)
{
    return MARGIN + at->column[stage] * (at->box_w + at->gap_x);
}

static int top_of(const struct layout *at, int stage)
{
    return MARGIN + at->row[stage] * (BOX_H + GAP_Y);
}

static void put_words(const char *class, int x, int y, const char *text, FILE *out)
{
    char shown[BOX_CHARS + 1];
    size_t bytes = strlen(text);
    if (bytes > BOX_CHARS)
        for (bytes = BOX_CHARS; bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80;)
            bytes--; /* not within a character of several bytes (UTF-8) */
    (void)snprintf(shown, sizeof shown, "%.*s", (int)bytes, text);
    fprintf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    put_xml(shown, out);
    fprintf(out, "</text>\n");
}

/* nth: among the links between the same two stages. An arrow to the same column or back bends below the
 * boxes. */
static void put_arrow(const struct layout *at, const struct pst_link_spec *link, int nth, const char *class,
                      const char *port, const char *label, FILE *out)
{
    const bool ahead = at->column[link->to] > at->column[link->from];
    const int x1 = left_of(at, link->from) + (ahead ? at->box_w : at->box_w / 2);
    const int x2 = left_of(at, link->to) + (ahead ? 0 : at->box_w / 2);
    const int y1 = top_of(at, link->from) + (ahead ? BOX_H / 2 + 14 * nth : BOX_H);
    const int y2 = top_of(at, link->to) + (ahead ? BOX_H / 2 + 14 * nth : BOX_H);
    const int lowest = y1 > y2 ? y1 : y2, bend = ahead ? 0 : GAP_Y + 14 * nth;
    const int c1 = ahead ? x1 + at->gap_x / 2 : x1, c2 = ahead ? x2 - at->gap_x / 2 : x2;
    const int d1 = ahead ? y1 : lowest + bend, d2 = ahead ? y2 : lowest + bend;
    const int x = (x1 + x2) / 2, y = ahead ? (y1 + y2) / 2 - 4 : lowest + bend * 3 / 4 - 4;
    fprintf(out, "<path class=\"%s\" d=\"M%d,%d C%d,%d %d,%d %d,%d\" marker-end=\"url(#a)\"/>\n", class, x1,
            y1, c1, d1, c2, d2, x2, y2);
    put_words("port", x, y, port, out);
    put_words("route", x, y + 17, label, out);
}

static void draw_svg(const struct pst_graph *graph, const struct pst_pipeline *pl, FILE *out)
{
    char label[LABEL_MAX] = "";
    struct layout at;
    lay_out(graph, pl, &at);
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\">\n<style>"
            "text{font:13px sans-serif;text-anchor:middle}.name{font-weight:bold}.port,.route{font-size:11px}"
            ".route{fill:#555}rect{fill:#eef3fb;stroke:#4a6fa5}path{fill:none;stroke:#555;stroke-width:1.5}"
            ".once{stroke-dasharray:5 4}.back{stroke-width:3}</style>\n<defs><marker id=\"a\" viewBox=\"0 0 "
            "8 8\" "
            "refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" "
            "orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" style=\"fill:#555;stroke:none\"/></marker></defs>\n"
            "<rect width=\"100%%\" height=\"100%%\" style=\"fill:#fff;stroke:none\"/>\n",
            2 * MARGIN + at.columns * (at.box_w + at.gap_x) - at.gap_x,
            2 * MARGIN + at.rows * (BOX_H + GAP_Y) + GAP_Y);
    for (int l = 0; l < pl->nlinks; l++) {
        const struct pst_link_spec *link = &pl->links[l];
        int nth = 0;
        for (int k = 0; k < l; k++)
            nth += pl->links[k].from == link->from && pl->links[k].to == link->to;
        link_label(graph, pl, link, label);
        put_arrow(&at, link, nth,
                  pst_link_oneshot(pl, link) ? "once"
                  : link->back               ? "back"
                                             : "link",
                  pst_link_from(pl, link)->name, label, out);
    }
    for (int s = 0; s < pl->nstages; s++) {
        const struct pst_pipeline_stage_spec *stage = &pl->stages[s];
        const int x = left_of(&at, s), y = top_of(&at, s), middle = x + at.box_w / 2;
        fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", x, y, at.box_w,
                BOX_H);
        stage_label(stage, base_of(stage->caps.run), label);
        put_words("name", middle, y + 22, stage->name, out);
        put_words("where", middle, y + 40, label, out);
        (void)snprintf(label, sizeof label, "%s%s", stage->group[0] ? "group " : "", stage->group);
        put_words("where", middle, y + 57, label, out);
    }
    fprintf(out, "</svg>\n");
}

void pst_graph_draw(const struct pst_graph *graph, const struct pst_pipeline *pl,
                    enum pst_graph_format format, FILE *out)
{
    static void (*const draw[])(const struct pst_graph *, const struct pst_pipeline *,
                                FILE *) = {[PST_GRAPH_TEXT] = draw_text,
                                           [PST_GRAPH_MERMAID] = draw_mermaid,
                                           [PST_GRAPH_DOT] = draw_dot,
                                           [PST_GRAPH_SVG] = draw_svg};
    draw[format](graph, pl, out);
}
