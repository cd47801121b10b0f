/* policies.c: the policies' names, and where reads come from. */
#include "stages/lib/legion/policies.h"

#include <string.h>

static const char *const names[PST_LEGION_POLICIES] = {"legion",  "gnnlab",  "quiver", "pagraph-plus",
                                                       "pagraph", "topocpu", "topogpu"};

const char *pst_legion_policy_name(enum pst_legion_policy policy)
{
    return names[policy];
}

bool pst_legion_policy_find(const char *name, enum pst_legion_policy *policy)
{
    for (int i = 0; i < PST_LEGION_POLICIES; i++)
        if (strcmp(name, names[i]) == 0) {
            *policy = (enum pst_legion_policy)i;
            return true;
        }
    return false;
}

void pst_legion_traffic_of(const struct pst_legion_placement *p, const struct pst_legion_counts *c,
                           int device, struct pst_legion_traffic *t)
{
    const int64_t group = p->group_of[device] * p->vertices, from = device * p->vertices;
    *t = (struct pst_legion_traffic){.rows_host = 0};
    for (int64_t v = 0; v < p->vertices; v++) {
        const int8_t rows = p->rows[group + v],
                     lists = p->lists_everywhere ? (int8_t)device : p->lists[group + v];
        *(rows >= 0 ? &t->rows[rows] : &t->rows_host) += c->rows[from + v];
        *(lists >= 0 ? &t->edges[lists] : &t->edges_host) += c->edges[from + v];
        t->lines_host += lists >= 0 ? 0 : c->lines[from + v];
    }
}
