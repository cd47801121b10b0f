/* report.h: the report of a run as JSON, made of what stages report and of what the supervisor measured, and
 * the table that is printed. common/run/README.md lists the fields. Owner: the caller. Threads: one. */
#ifndef PST_REPORT_H
#define PST_REPORT_H

#include <jansson.h>
#include <stdio.h>
#include <sys/resource.h>

#include "common/run/bound.h"

#define PST_REPORT_DIGITS 9 /* of a real number in a file */
#define PST_REPORT_SCHEMA 1 /* changes if a field changes its meaning or is removed */

struct pst_pipeline;

json_t *pst_report_new(void);
/* Adds what the instance `who` reports. Section "epochs" appends a row, "result" sets fields of the top
 * level, any other is summed number by number. Returns NULL, or the field that a stage may not report,
 * because the runtime or another section has it: then nothing was added. */
const char *pst_report_add(json_t *report, const char *who, const char *section, const json_t *data);
/* device: where it ran. chosen: why it ran there; empty: the pipeline said so. */
void pst_report_stage(json_t *report, const char *name, const char *device, const char *chosen, int pid,
                      const struct pst_page *page);
/* Processor time of a process, and the most memory that it had, shared memory included. */
void pst_report_process(json_t *report, const char *name, const struct rusage *used);
/* Times of one clock, in seconds; 0: not reached. planned: when the last stage ended that runs before the
 * streams.
 */
void pst_report_phases(json_t *report, double launched, double planned, double started, double ended);
/* How `procs` processes share a GPU. why NULL: by MPS; else they take turns, and why is the reason. If procs
 * is 1, why is the reason for that; empty: the pipeline says so. */
void pst_report_gpus(json_t *report, int procs, const char *why);
/* Why slots on a GPU change hands on the host. Call it after pst_report_gpus. */
void pst_report_no_events(json_t *report, const char *why);
/* Adds the bottleneck, and each stage's share of span_s, which is the time that the streams ran. bus_s: how
 * long the modelled bus moved bytes meanwhile. Call it after pst_report_stage was called for each of the n
 * instances; it fills the times of parts. */
void pst_report_bound(json_t *report, const char *const *names, struct pst_run_part *parts, int n,
                      double span_s, double bus_s);
/* The pipeline's bus, what was read over it from CPU memory, and what drives moved over it. */
void pst_report_bus(json_t *report, double bytes_per_s, double dilate, uint64_t bytes, uint64_t drive_bytes);

/* What the run is: version and commit (may be empty) of the program, the NULL-terminated words of the command
 * line, the host, and of each stage its parameters and the digest of its file. Call it before the run starts,
 * since files may change. The caller releases the record. */
PST_API json_t *pst_report_record(const struct pst_pipeline *pl, const char *version, const char *commit,
                                  const char *const *command);
/* Adds the fields of a record, and those of its stages to each instance. Call it after the run. */
PST_API void pst_report_add_record(json_t *report, const json_t *record);

/* Adds an epoch's row, with the time `ended` (seconds since 1970), to the file epochs.jsonl of the run's
 * directory: one JSON object a line, so that other programs see epochs before the run has a report. A resumed
 * run in the same directory adds to the file; of two rows of an epoch, the later one counts. */
#define PST_REPORT_EPOCHS "epochs.jsonl"
pst_rc pst_report_note_epoch(const char *run_dir, const json_t *row);

/* A text as JSON. It may be cut within a character, or quote bytes that are not UTF-8: those become '?'. */
json_t *pst_report_text(const char *text);

void pst_report_failure(json_t *report, const char *stage, const char *text);
/* Keeps a warning in `warnings`, and no more than 100 of them. */
void pst_report_warning(json_t *report, const char *stage, const char *text);
/* Derived values: rates, hit rates, read amplification, the verdict. If several instances have reported a
 * section, each one's own figures are in stages{NAME}.reports. Call it after pst_report_stage. */
void pst_report_finish(json_t *report);
PST_API void pst_report_print(const json_t *report, FILE *out);

/* Replaces a file of a run's directory, whole or not at all. */
PST_API PST_MUST_USE pst_rc pst_report_write_json(const json_t *json, const char *path);

/* Writes to what a user named: "-" is standard output; a regular file, or the one that a link names, is
 * replaced whole or not at all; a pipe, a terminal or another character device is written to as it is.
 * PST_E_ARG: it is a directory, a block device or a socket. PST_E_STATE: a pipe that nobody reads. */
PST_API PST_MUST_USE pst_rc pst_report_put_json(const json_t *json, const char *path);
/* Checks, before the work begins, that pst_report_put_json can begin to write there. option: for the message.
 * PST_E_ARG: it cannot. */
PST_API PST_MUST_USE pst_rc pst_report_check_path(const char *option, const char *path);

#endif
