/* pipeline.h: a checked pipeline: what the JSON file says, with every name resolved. README.md describes the
 * file. Owner: the caller, who releases it. Threads: one at a time. */
#ifndef PST_PIPELINE_H
#define PST_PIPELINE_H

#include "common/pipeline/desc/caps.h"
#include "common/pipeline/json/json.h"

#define PST_PIPELINE_LINKS_MAX 256
#define PST_PIPELINE_SLOTS_DEFAULT                                                                           \
    4 /* one is filled, one is read, one is trained on, and one is to spare                                  \
       */
#define PST_PIPELINE_DEVICES_MAX 16
#define PST_PIPELINE_DEVICE_MAX 32     /* bytes of a device's name */
#define PST_PIPELINE_STAGE_NAME_MAX 50 /* leaves room in PST_NAME_MAX for the number of an instance */
#define PST_PIPELINE_ENDPOINT_MAX 128

struct pst_pipeline_stage_spec {
    char name[PST_NAME_MAX];
    char origin[PST_NAME_MAX]; /* its name in the file, which all its replicas share */
    int replica, replicas;     /* its number among so many of this rank, from 0; 0 replicas: it is not
                                  replicated */
    struct pst_caps caps;
    json_t *params; /* every parameter, in its normal form */
    char device[PST_PIPELINE_DEVICE_MAX];
    char chosen[400];         /* the file says "auto": why this device was chosen; else empty */
    bool own_device;          /* the file names the device for this stage alone */
    int sm_percent;           /* share of a GPU's multiprocessors; 100: all */
    char cores[PST_NAME_MAX]; /* "0-3,6"; empty: any */
    char group[PST_NAME_MAX]; /* stages of a group share a process; empty: a process of its own */
    char endpoint[PST_PIPELINE_ENDPOINT_MAX]; /* of a foreign stage: tcp://...; empty: a local socket */
    int instances;
    uint32_t linked; /* bit p: a link, right or wrong, names port p */
};
static_assert(PST_PORTS_MAX <= 32, "one bit a port");

struct pst_link_spec {
    int from, from_port; /* indices of the stage and of its port */
    int to, to_port;
    int slots; /* 0: not given */
    bool back; /* closes a loop */
    int index; /* in the list of the file */
};

#define PST_PIPELINE_PARTS_TEXT 512

struct pst_pipeline {
    struct pst_json doc;
    char name[PST_NAME_MAX];
    char base_dir[PST_PATH_MAX];          /* the directory of the file */
    char dataset[PST_PATH_MAX];           /* empty: not given */
    char device[PST_PIPELINE_DEVICE_MAX]; /* for stages that name none and can run there; empty: cpu:0 */
    char measured[PST_PATH_MAX]; /* a run whose times tell "auto" whether two GPUs pay; empty: none */
    double link_bytes_per_s;     /* between two GPUs that reach each other */
    uint64_t seed;
    int64_t epochs;
    char stop_metric[PST_NAME_MAX];     /* a figure of the epochs' rows in the report */
    int64_t stop_patience;              /* the run ends after so many epochs without a better one; 0: never */
    bool overlap;                       /* false: one batch is in the pipeline at a time */
    double bus_bytes_per_s, bus_dilate; /* 0: no bus; the run's rate is the quotient */
    int ranks;                          /* each has the replicas that the file says; 1: one machine */
    /* Where the parts of the dataset begin, as JSON, if it is cut into parts: "[0,1354]". The caller
     * sets it; "": the dataset is whole, or not known. */
    char parts[PST_PIPELINE_PARTS_TEXT];
    struct pst_pipeline_stage_spec *stages;
    int nstages;
    struct pst_link_spec *links;
    int nlinks;
};

struct pst_pipeline_options {
    char *const *overlays; /* files that are merged over the pipeline, in order */
    int noverlays;
    char *const *sets; /* "PATH=VALUE" each, applied in order, after the overlays */
    int nsets;
    bool group_all; /* every stage becomes a thread of one process */
    int ranks;      /* how many machines run the pipeline together; 0 or 1: only this one */
};

/* Loads and checks a pipeline file, or the installed pipeline of the name `file`. All errors go to diag;
 * false if there are any. */
PST_API bool pst_pipeline_load(struct pst_pipeline *pl, const char *file,
                               const struct pst_pipeline_options *options, struct pst_diag *diag);
PST_API void pst_pipeline_release(struct pst_pipeline *pl);

/* Writes the pipeline as one file, with its overlays and --set merged, and with its seed and epochs. The
 * paths of the dataset, of stages and in parameters become absolute. PST_E_IO: it cannot be written. */
PST_API PST_MUST_USE pst_rc pst_pipeline_write(const struct pst_pipeline *pl, const char *path);

/* A value of a parameter, whose relative paths (pst_param_desc.path) start at this directory, with absolute
 * paths. The caller releases it; NULL: out of memory. */
PST_API_TEST json_t *pst_pipeline_absolute(const struct pst_param_desc *param, const json_t *value);

/* The index of a stage; -1: there is none of this name. */
PST_API_TEST int pst_pipeline_stage(const struct pst_pipeline *pl, const char *name);

/* The path of a parameter in the file: where its value was given. Without a value, the stage's own path. */
PST_API void pst_pipeline_param_path(const struct pst_pipeline *pl, const char *stage, const char *param,
                                     char out[PST_JSON_PATH_MAX]);

/* The number of replicas of a stage on all ranks together; at least 1. */
static inline int pst_pipeline_replicas(const struct pst_pipeline *pl,
                                        const struct pst_pipeline_stage_spec *stage)
{
    return stage->replicas > 0 ? stage->replicas * pl->ranks : 1;
}

/* How many slots of this port an instance keeps at most. */
PST_API_TEST int pst_pipeline_port_hold(const struct pst_pipeline_stage_spec *stage,
                                        const struct pst_port_desc *port);

#endif
