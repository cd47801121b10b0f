/* pipeline.h: a checked pipeline: what the JSON file says, with every name resolved. Owner: the caller.
 * common/README.md shows the file's form. */
#ifndef PST_PIPELINE_H
#define PST_PIPELINE_H

#include "common/pipeline/caps.h"
#include "common/pipeline/json.h"

#define PST_PIPELINE_LINKS_MAX 256
#define PST_PIPELINE_SLOTS_DEFAULT 4 /* one being filled, one read, one trained on, one to spare */
#define PST_PIPELINE_DEVICES_MAX 16
#define PST_PIPELINE_STAGE_NAME_MAX 50 /* leaves room in PST_NAME_MAX for an instance's number */

struct pst_pipeline_stage_spec {
    char name[PST_NAME_MAX];
    struct pst_caps caps;
    json_t *params; /* every parameter, normal form */
    char device[32];
    char chosen[200];         /* why it is there, where the file says "auto"; else empty */
    int sm_percent;           /* of a GPU's multiprocessors; 100: all */
    char cores[PST_NAME_MAX]; /* "0-3,6"; empty: any */
    char group[PST_NAME_MAX]; /* stages of one group are threads of one process; empty: its own process */
    char endpoint[128];       /* of a foreign stage: tcp://...; empty: a socket of this machine's own */
    int instances;
    uint32_t linked; /* ports that a link names, be that link right or wrong */
};
static_assert(PST_PORTS_MAX <= 32, "one bit a port");

struct pst_link_spec {
    int from, from_port; /* stage, port: indices */
    int to, to_port;
    int slots; /* 0: not given */
    bool back; /* closes a loop */
    int index; /* in the file's list; -1: inserted by the runtime */
};

struct pst_pipeline {
    struct pst_json doc;
    char name[PST_NAME_MAX];
    char base_dir[4096]; /* of the file */
    char dataset[4096];  /* empty: not given */
    char device[32];     /* of stages whose place names none, and that can run there; empty: cpu:0 */
    uint64_t seed;
    int64_t epochs;
    struct pst_pipeline_stage_spec *stages;
    int nstages;
    struct pst_link_spec *links;
    int nlinks;
};

/* Loads and checks FILE; sets[nsets] are "PATH=VALUE" applied before checking. With group_all every stage
 * becomes a thread of one process. All errors go to diag; false if there is any. */
bool pst_pipeline_load(struct pst_pipeline *pl, const char *file, char *const *sets, int nsets,
                       bool group_all, struct pst_diag *diag);
void pst_pipeline_release(struct pst_pipeline *pl);
int pst_pipeline_stage(const struct pst_pipeline *pl, const char *name); /* -1: none */

/* "param=value" holds for this stage? NULL or empty: no. */
bool pst_pipeline_condition(const struct pst_pipeline_stage_spec *stage, const char *condition);
/* How many slots an instance may keep on this port. */
int pst_pipeline_port_hold(const struct pst_pipeline_stage_spec *stage, const struct pst_port_desc *port);

#endif
