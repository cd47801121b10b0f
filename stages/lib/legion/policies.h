/* policies.h: which device caches which feature row and which list of neighbours, by the policies of
 * Legion's figures, and from where each device then reads.
 *
 * Devices that share their caches are a group: a clique, or one device alone if the policy knows no peers.
 *
 * Owner: the caller. Threads: any. */
#ifndef PST_LEGION_POLICIES_H
#define PST_LEGION_POLICIES_H

#include "stages/lib/legion/batches.h"

PST_BEGIN_DECLS

/* In the order of PST_LEGION_POLICY_CHOICES. */
enum pst_legion_policy {
    PST_LEGION_LEGION,       /* a part of the graph for each clique; hot rows and lists, by CSLP */
    PST_LEGION_GNNLAB,       /* global shuffle; each device has the rows that are hottest for all; no peers */
    PST_LEGION_QUIVER,       /* global shuffle; each clique has the hottest rows, striped by id */
    PST_LEGION_PAGRAPH_PLUS, /* a part of the graph for each device; its own hottest rows; no peers */
    PST_LEGION_PAGRAPH,      /* training vertices split by hash; rows by in-degree in the neighbourhood */
    PST_LEGION_TOPOCPU,      /* as legion, with rows only */
    PST_LEGION_TOPOGPU       /* as legion, with all lists on each device */
};
#define PST_LEGION_POLICIES 7
#define PST_LEGION_POLICY_CHOICES "legion|gnnlab|quiver|pagraph-plus|pagraph|topocpu|topogpu"
PST_API const char *pst_legion_policy_name(enum pst_legion_policy policy);
/* False: there is no policy of this name. */
PST_API PST_MUST_USE bool pst_legion_policy_find(const char *name, enum pst_legion_policy *policy);

struct pst_legion_placement {
    int devices, groups;
    int64_t vertices;
    int group_of[PST_CLIQUES_MAX];     /* of each device */
    uint64_t members[PST_CLIQUES_MAX]; /* of each group, devices as bits */
    int8_t *rows, *lists;              /* groups x vertices: the device that has it, or PST_CSLP_NOWHERE */
    bool lists_everywhere;             /* each device has all lists; `lists` is not used */
};

/* Rows and list reads of one device, by where they come from. */
struct pst_legion_traffic {
    uint64_t rows[PST_CLIQUES_MAX]; /* from each device; its own: local */
    uint64_t rows_host;
    uint64_t edges[PST_CLIQUES_MAX]; /* drawn from lists on each device */
    uint64_t edges_host;
    uint64_t lines_host; /* lines of lists that the host delivers */
};

/* Where the reads of a device come from. */
PST_API void pst_legion_traffic_of(const struct pst_legion_placement *p, const struct pst_legion_counts *c,
                                   int device, struct pst_legion_traffic *t);

PST_END_DECLS
#endif
