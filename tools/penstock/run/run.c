/* run.c: penstock run. */
#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/pipeline/identity.h"
#include "common/store/checkpoint.h"
#include "common/util/file.h"
#include "common/run/report.h"
#include "common/run/run.h"
#include "common/store/parted/parted.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/gnn/state.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/run/pipeline_options.h"
#include "tools/penstock/run/mpirun.h"
#include "tools/penstock/run/run_checks.h"
#include "tools/penstock/run/run_dir.h"

#define BATCHES_MAX INT64_C(1000000000000) /* of --batches: more than any training has */
#define LIVE_S 0.5                         /* between two looks at the progress, on a terminal */
#define LOG_S 30.0                         /* between its lines in a log */

struct run_args {
    struct pipeline_options pipeline;
    struct ranks ranks;
    const char **command; /* the words of the command line; the last is NULL */
    char run_dir[PST_PATH_MAX];
    const char *report, *trace, *resume;
    char own_report[PST_PATH_MAX], own_trace[PST_PATH_MAX]; /* of another rank than the first */
    int64_t batches;                                        /* 0: all */
    bool progress, quiet, debug;
    const char *debug_stage;
};

static const char run_usage[] =
    "usage: penstock run [OPTION]... FILE\n"
    "Runs the pipeline in FILE and prints a report. FILE can also be the name of a pipeline that came with "
    "Penstock,\n"
    "for example hyperion.\n\n" PIPELINE_OPTIONS_HELP
    "  --run-dir DIR      write logs, plan, checkpoints and report here (default: runs/NAME-TIME)\n"
    "  --report FILE      write the report to FILE, too; - is standard output\n"
    "  --trace FILE       write a trace that Perfetto and Chrome can open\n"
    "  --resume DIR       resume from the last checkpoint in the run directory DIR\n"
    "  --init-from RUN    begin with the embeddings of the last checkpoint of RUN, another run; vertices "
    "that it\n"
    "                     does not have begin as usual\n"
    "  --batches N        end after N batches, for a trial; an epoch that is not complete has no evaluation\n"
    "                     and no checkpoint\n"
    "  --debug[=STAGE]    print how to attach a debugger to each process, and accept that processes are "
    "stopped;\n"
    "                     STAGE waits before it opens until a debugger is attached to it; shows no "
    "progress\n"
    "  --progress         show the progress in one line that changes, even if standard error is no "
    "terminal;\n"
    "                     otherwise a log gets a line every 30 s\n"
    "  --quiet            show no progress\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong, and nothing was started; 129, 130 or 143 "
    "interrupted "
    "by\n"
    "SIGHUP, SIGINT or SIGTERM, after a checkpoint.\n";

/* ---- resuming ------------------------------------------------------------------------------------ */

/* A foreign stage's checkpoint has the next batch of each of its inputs: {"batch": 12, "val": 4}. */
static pst_rc read_starts(const struct pst_checkpoint *ck, struct pst_run_options *opt)
{
    const char *stage = pst_checkpoint_text(ck, "stage"), *text = pst_checkpoint_text(ck, "next_batches");
    const char *port;
    json_t *batch, *all = text ? json_loads(text, 0, NULL) : NULL;
    pst_rc rc = PST_OK;
    if (!stage || !text)
        return PST_OK; /* of one of our own stages */
    (void)snprintf(opt->start_stage, sizeof opt->start_stage, "%s", stage);
    if (!json_is_object(all) || json_object_size(all) > PST_PORTS_MAX)
        rc = pst_fail(PST_E_FORMAT,
                      "%s: \"next_batches\" is \"%.200s\": expected an object with a number for each input",
                      ck->path, text);
    json_object_foreach(rc == PST_OK ? all : NULL, port, batch)
    {
        if (!json_is_integer(batch) || json_integer_value(batch) < 0)
            rc = pst_fail(PST_E_FORMAT, "%s: next_batches.%.60s: expected an integer of at least 0", ck->path,
                          port);
        struct pst_run_start *start = &opt->starts[opt->nstarts++];
        (void)snprintf(start->port, sizeof start->port, "%s", port);
        start->batch = (uint64_t)json_integer_value(batch);
    }
    json_decref(all);
    return rc;
}

static pst_rc find_checkpoint(const char *dir, const struct pst_pipeline *pl, const char *dataset_digest,
                              char path[PST_PATH_MAX], struct pst_run_options *opt)
{
    char checkpoints[PST_PATH_MAX], skipped[1024] = "";
    (void)snprintf(checkpoints, sizeof checkpoints, "%.4000s/checkpoints", dir);
    pst_rc rc = pst_checkpoint_latest(checkpoints, path, PST_PATH_MAX, skipped, sizeof skipped);
    if (skipped[0])
        fprintf(stderr, "warning: %s\n", skipped);
    if (rc != PST_OK)
        return pst_wrap(rc, "cannot resume from %s", dir);
    struct pst_checkpoint ck;
    uint64_t seed = 0;
    rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    const char *digest = pst_checkpoint_text(&ck, "dataset");
    rc = pst_gnn_state_check_version(&ck);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(&ck, "next_batch", &opt->start_batch);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(&ck, "seed", &seed);
    if (rc == PST_OK && seed != pl->seed)
        rc = pst_fail(PST_E_ARG, "%s was made with seed %llu, but this run has seed %llu: give --seed %llu",
                      path, (unsigned long long)seed, (unsigned long long)pl->seed, (unsigned long long)seed);
    if (rc == PST_OK && digest && strcmp(digest, dataset_digest) != 0)
        rc = pst_fail(PST_E_ARG,
                      "%s was made with another dataset: its digest is %s, but this dataset's is %s", path,
                      digest, dataset_digest);
    const char *run = pst_checkpoint_text(&ck, PST_CHECKPOINT_RUN);
    if (rc == PST_OK && run)
        rc = pst_wrap(pst_pipeline_check_identity(pl, run), "cannot resume from %s", path);
    else if (rc == PST_OK)
        fprintf(stderr,
                "warning: %s does not record which batches it was made with: make sure that this pipeline "
                "trains on the same\n",
                path);
    if (rc == PST_OK)
        rc = read_starts(&ck, opt);
    pst_checkpoint_close(&ck);
    return rc;
}

/* ---- run ----------------------------------------------------------------------------------------- */

static bool set_run_dir(struct run_args *args, const char *dir)
{
    if (snprintf(args->run_dir, sizeof args->run_dir, "%s", dir) < (int)sizeof args->run_dir)
        return true;
    fprintf(stderr, "penstock run: --run-dir: the path is longer than %zu bytes\n", sizeof args->run_dir - 1);
    return false;
}

static bool read_batches(const char *text, int64_t *batches)
{
    return command_result("run", option_int("--batches", text, 1, BATCHES_MAX, batches)) == 0;
}

/* 0: go on; else the exit code plus one. */
static int parse_run(int argc, char **argv, struct run_args *args)
{
    static const struct option options[] = {
        PIPELINE_OPTIONS,
        {"run-dir", required_argument, NULL, 'r'},
        {"report", required_argument, NULL, 'R'},
        {"trace", required_argument, NULL, 't'},
        {"resume", required_argument, NULL, 'c'},
        {"init-from", required_argument, NULL, 'I'},
        {"batches", required_argument, NULL, 'B'},
        {"progress", no_argument, NULL, 'P'},
        {"quiet", no_argument, NULL, 'q'},
        {"debug", optional_argument, NULL, 'b'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c;
    bool ok = true;
    optind = 1;
    while (ok && (c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        switch (c) {
        case 'r': ok = set_run_dir(args, optarg); break;
        case 'R': args->report = optarg; break;
        case 't': args->trace = optarg; break;
        case 'c': args->resume = optarg; break;
        case 'B': ok = read_batches(optarg, &args->batches); break;
        case 'P': args->progress = true; break;
        case 'q': args->quiet = true; break;
        case 'b':
            args->debug = true;
            args->debug_stage = optarg;
            break;
        case 'h': printf("%s", run_usage); return 1;
        default: ok = pipeline_option(&args->pipeline, c, optarg); break;
        }
    }
    if (ok && optind == argc - 1)
        return 0;
    if (ok)
        fprintf(stderr, "penstock run: expected one pipeline file, found %d arguments\n", argc - optind);
    fprintf(stderr, "`penstock run --help` lists the options\n");
    return 3;
}

/* Merges the files of spans, one for each stage, into one trace. */
static pst_rc merge_traces(const char *run_dir, const char *out)
{
    char dir[4200];
    (void)snprintf(dir, sizeof dir, "%s/trace", run_dir);
    DIR *d = opendir(dir);
    FILE *to = d ? fopen(out, "we") : NULL;
    if (!to) {
        pst_rc rc = pst_fail_errno("cannot write the trace %s", out);
        if (d)
            (void)closedir(d);
        return rc;
    }
    fprintf(to, "{\"traceEvents\":[\n");
    for (struct dirent *e; (e = readdir(d));) {
        char path[4608], line[1024];
        (void)snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        FILE *from = e->d_name[0] != '.' ? fopen(path, "re") : NULL;
        while (from && fgets(line, sizeof line, from))
            (void)fputs(line, to);
        if (from)
            (void)fclose(from);
    }
    fprintf(
        to,
        "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":0,\"tid\":0,\"args\":{\"name\":\"penstock run\"}}\n"
        "],\"displayTimeUnit\":\"ms\"}\n");
    (void)closedir(d);
    bool bad = ferror(to) != 0;
    if (fclose(to) != 0 || bad)
        return pst_fail_errno("cannot write the trace %s", out);
    return PST_OK;
}

static pst_rc write_report(const json_t *report, const struct run_args *args)
{
    char path[PST_PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/report.json", args->run_dir);
    pst_rc rc = pst_report_write_json(report, path);
    if (rc == PST_OK && args->report)
        rc = pst_report_put_json(report, args->report);
    if (rc == PST_OK && args->trace)
        rc = merge_traces(args->run_dir, args->trace);
    return rc;
}

/* Where the checkpoint of an interrupted run is, and how to go on from it. */
static void tell_resume(const char *run_dir)
{
    char checkpoints[PST_PATH_MAX + 32], path[PST_PATH_MAX + 64];
    uint64_t number;
    (void)snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", run_dir);
    if (pst_checkpoint_list(checkpoints, &number, 1) == 0) {
        fprintf(stderr, "interrupted before the first checkpoint\n");
        return;
    }
    pst_checkpoint_path(checkpoints, number, path, sizeof path);
    fprintf(stderr,
            "interrupted; the last checkpoint is %s\n"
            "to resume, repeat the command with --resume %s\n",
            path, run_dir);
}

/* The table and the path of the report; on standard error if the report itself goes to standard output. */
static int finish(const json_t *report, const struct run_args *args, enum pst_run_end end, int number)
{
    const bool taken = args->report && strcmp(args->report, "-") == 0;
    FILE *out = taken ? stderr : stdout;
    const pst_rc rc = write_report(report, args);
    if (args->ranks.rank == 0)
        pst_report_print(report, out);
    if (rc != PST_OK)
        fprintf(stderr, "error: %s\n", pst_error_text());
    if (end == PST_RUN_INTERRUPTED && args->ranks.rank == 0)
        tell_resume(args->run_dir);
    if (args->ranks.rank == 0)
        fprintf(out, "report: %s/report.json\n", args->run_dir);
    if (end == PST_RUN_FAILED || rc != PST_OK)
        return 1;
    return end == PST_RUN_INTERRUPTED ? 128 + number : 0;
}

static pst_rc note_files(struct pst_run_options *opt, const struct pst_dataset *ds)
{
    char manifest[4200];
    (void)snprintf(manifest, sizeof manifest, "%s/dataset.json", ds->dir);
    const char *paths[] = {manifest,          ds->indptr.path,   ds->indices.path, ds->labels.path,
                           ds->split[0].path, ds->split[1].path, ds->split[2].path};
    pst_rc rc = PST_OK;
    for (size_t i = 0; i < sizeof paths / sizeof *paths && rc == PST_OK; i++)
        rc = pst_run_note_file(opt, paths[i]);
    for (int k = 0; k < pst_feature_files(ds) && rc == PST_OK; k++)
        rc = pst_run_note_file(opt, pst_feature_file(ds, k)->path);
    for (int k = 0; k < ds->vertex_types && rc == PST_OK; k++)
        rc = pst_run_note_file(opt, ds->vertex_type[k].features.path);
    return rc;
}

/* From here on a signal stays pending until the supervisor takes it, or until the report is written. SIGPIPE
 * is ignored: a run does not end because the reader of its output went away. */
static void hold_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

/* Checks the paths of the report and the trace, so that a training is not lost for a wrong one. */
static pst_rc check_outputs(const struct run_args *args)
{
    pst_rc rc = args->report ? pst_report_check_path("--report", args->report) : PST_OK;
    return rc == PST_OK && args->trace ? pst_report_check_path("--trace", args->trace) : rc;
}

static json_t *first_of_parts(const struct pst_dataset *ds)
{
    json_t *first = json_array();
    for (int k = 0; k < ds->cut.parts; k++)
        (void)json_array_append_new(first, json_integer((json_int_t)ds->cut.first[k]));
    return first;
}

static void note_parts(struct pst_pipeline *pl, const struct pst_dataset *ds)
{
    json_t *first = first_of_parts(ds);
    char *text = ds->cut.parts > 0 ? json_dumps(first, JSON_COMPACT) : NULL;
    static_assert(sizeof pl->parts > PST_DATASET_PARTS_MAX * 21, "all numbers fit");
    (void)snprintf(pl->parts, sizeof pl->parts, "%s", text ? text : "");
    free(text);
    json_decref(first);
}

/* Opens the pipeline's dataset and checks that it suits the pipeline. Prints what is wrong. */
static bool open_dataset(struct pst_pipeline *pl, const struct ranks *ranks, struct pst_dataset *ds)
{
    if (!pl->dataset[0]) {
        fprintf(stderr, "%s: no dataset: name one in the file as \"dataset\", or give --dataset DIR\n",
                pl->doc.file);
        return false;
    }
    char *full = realpath(pl->dataset, NULL);
    if (full)
        (void)snprintf(pl->dataset, sizeof pl->dataset, "%s", full);
    free(full);
    if (pst_parted_open(ds, pl->dataset, ranks->rank, pl->ranks) != PST_OK) {
        fprintf(stderr, "penstock run: %s\n", pst_error_text());
        return false;
    }
    note_parts(pl, ds);
    if (dataset_suits(pl, ds))
        return true;
    pst_dataset_close(ds);
    return false;
}

static json_t *describe_dataset(const struct pst_pipeline *pl, const struct pst_dataset *ds)
{
    const int64_t rows = ds->cut.parts > 0 ? ds->features.shape[0] : ds->vertices;
    const uint64_t feature_bytes = (uint64_t)rows * ds->stride_bytes;
    json_t *about = json_pack("{ss sI sI sI sI}", "dir", pl->dataset, "vertices", (json_int_t)ds->vertices,
                              "edges", (json_int_t)ds->edges, "feature_dim", (json_int_t)ds->feature_dim,
                              "feature_bytes", (json_int_t)feature_bytes);
    if (ds->cut.parts > 0)
        (void)json_object_set_new(about, "part",
                                  json_pack("{si si sI sI sI}", "number", ds->cut.part, "parts",
                                            ds->cut.parts, "first", (json_int_t)ds->features.first_row,
                                            "rows", (json_int_t)rows, "edges",
                                            (json_int_t)ds->indices.shape[0]));
    if (ds->splits > 0) /* dataset_suits has chosen one */
        (void)json_object_set_new(about, "split", json_string(ds->named_split[ds->chosen].name));
    return about;
}

static pst_rc write_pipeline(const struct pst_pipeline *pl, const char *run_dir)
{
    char path[PST_PATH_MAX];
    (void)snprintf(path, sizeof path, "%.4000s/" RUN_PIPELINE_NAME, run_dir);
    return pst_pipeline_write(pl, path);
}

/* Takes the run's directory and finds the checkpoint to resume from. id: of this run, made here. */
static pst_rc prepare(const struct pst_pipeline *pl, const struct pst_dataset *ds, struct run_args *args,
                      struct pst_run_options *opt, char checkpoint[PST_PATH_MAX], char id[PST_RUN_ID_MAX],
                      int *lock)
{
    pst_rc rc = PST_OK;
    (void)snprintf(opt->dataset_dir, sizeof opt->dataset_dir, "%s", ds->dir);
    (void)snprintf(opt->dataset_digest, sizeof opt->dataset_digest, "%s", ds->digest);
    if (args->resume)
        rc = find_checkpoint(args->resume, pl, ds->digest, checkpoint, opt);
    if (rc == PST_OK)
        rc = note_files(opt, ds);
    hold_signals();
    if (rc == PST_OK)
        rc = pst_run_id(id);
    if (rc == PST_OK)
        rc = run_dir_open(args->run_dir, pl->name, id, args->resume, lock);
    if (rc == PST_OK)
        rc = write_pipeline(pl, args->run_dir);
    opt->id = id;
    opt->resume = args->resume ? checkpoint : NULL;
    return rc;
}

/* What the ranks have in common beside the pipeline: the program, and where they resume. */
static pst_rc note_facts(struct pst_run_options *opt, const struct pst_dataset *ds)
{
    json_t *first = first_of_parts(ds);
    char digest[PST_FILE_DIGEST_BYTES] = "";
    if (ds->cut.lists)
        (void)json_array_append_new(first, json_string("with lists"));
    const pst_rc rc = opt->resume && opt->ranks > 1 ? pst_file_digest(opt->resume, digest) : PST_OK;
    opt->facts = json_pack("{ss ss ss so}", "the version of Penstock", command_release(),
                           "the commit of Penstock", command_commit(), "the digest of the checkpoint", digest,
                           "the first vertex of each part", first);
    return rc;
}

/* Is there a stage for --debug to wait at? Says what there is, if not. */
static bool can_wait_at(const struct pst_pipeline *pl, const char *name)
{
    const char *names[PST_STAGES_MAX];
    size_t n = 0;
    for (int s = 0; name && s < pl->nstages && n < PST_STAGES_MAX; s++) {
        if (strcmp(pl->stages[s].name, name) == 0 || strcmp(pl->stages[s].origin, name) == 0)
            return true;
        names[n++] = pl->stages[s].name;
    }
    if (name)
        command_unknown("penstock run: --debug", "stage", name, names, n);
    return !name;
}

static int run_checked(struct pst_pipeline *pl, const struct pst_graph *graph, struct run_args *args)
{
    struct pst_dataset ds;
    char checkpoint[PST_PATH_MAX], id[PST_RUN_ID_MAX];
    struct pst_run_options opt = {.run_dir = args->run_dir,
                                  .batches = (uint64_t)args->batches,
                                  .trace = args->trace != NULL,
                                  .debug = args->debug,
                                  .debug_stage = args->debug_stage,
                                  .rank = args->ranks.rank,
                                  .ranks = args->ranks.ranks,
                                  .live = !args->quiet && args->ranks.rank == 0 &&
                                          (args->progress || isatty(STDERR_FILENO))};
    if (!args->quiet && !args->debug && args->ranks.rank == 0) /* a line would disturb a debugger's prompt */
        opt.progress_s = opt.live ? LIVE_S : LOG_S;
    int lock, number;
    if (!can_wait_at(pl, args->debug_stage) || !open_dataset(pl, &args->ranks, &ds))
        return 2;
    json_t *report, *about = describe_dataset(pl, &ds);
    pst_rc rc = prepare(pl, &ds, args, &opt, checkpoint, id, &lock);
    if (rc == PST_OK)
        rc = note_facts(&opt, &ds);
    pst_dataset_close(&ds);
    if (rc != PST_OK) {
        fprintf(stderr, "penstock run: %s\n", pst_error_text());
        json_decref(about);
        return rc == PST_E_IO ? 1 : 2;
    }
    if (opt.rank == 0)
        fprintf(stderr, "%s on %s, in %s%s%s\n", pl->name, pl->dataset, args->run_dir,
                opt.resume ? ", resumed from " : "", opt.resume ? opt.resume : "");
    json_t *record = pst_report_record(pl, command_release(), command_commit(), args->command);
    const enum pst_run_end end = pst_run(pl, graph, &opt, &report, &number);
    pst_report_add_record(report, record);
    json_decref(record);
    json_decref(opt.facts);
    (void)json_object_set_new(report, "dataset", about);
    (void)json_object_set_new(report, "run_dir", json_string(args->run_dir));
    const int status = finish(report, args, end, number);
    json_decref(report);
    (void)close(lock);
    return status;
}

/* Another rank than the first writes beside it. */
static pst_rc find_ranks(struct run_args *args)
{
    pst_rc rc = ranks_find(&args->ranks);
    if (rc != PST_OK || args->ranks.rank == 0)
        return rc;
    rc = ranks_own_path(&args->ranks, args->run_dir, sizeof args->run_dir);
    if (args->report && strcmp(args->report, "-") == 0)
        args->report = NULL; /* the first rank's report is enough */
    if (rc == PST_OK && args->report) {
        (void)snprintf(args->own_report, sizeof args->own_report, "%s", args->report);
        args->report = args->own_report;
        rc = ranks_own_path(&args->ranks, args->own_report, sizeof args->own_report);
    }
    if (rc == PST_OK && args->trace) {
        (void)snprintf(args->own_trace, sizeof args->own_trace, "%s", args->trace);
        args->trace = args->own_trace;
        rc = ranks_own_path(&args->ranks, args->own_trace, sizeof args->own_trace);
    }
    return rc;
}

/* Before getopt changes their order. */
static bool note_command(int argc, char **argv, struct run_args *args)
{
    args->command = calloc((size_t)argc + 2, sizeof *args->command);
    if (!args->command)
        return false;
    args->command[0] = "penstock";
    for (int i = 0; i < argc; i++)
        args->command[i + 1] = argv[i];
    return true;
}

int cmd_run(int argc, char **argv)
{
    struct run_args *args = calloc(1, sizeof *args);
    struct pst_graph *graph = calloc(1, sizeof *graph);
    struct pst_pipeline pl = {0};
    const bool ready = args && graph && note_command(argc, argv, args);
    int status = !ready ? 2 : parse_run(argc, argv, args);
    if (status != 0) {
        status--;
    } else if (find_ranks(args) != PST_OK || check_outputs(args) != PST_OK) {
        fprintf(stderr, "penstock run: %s\n", pst_error_text());
        status = 2;
    } else {
        args->pipeline.ranks = args->ranks.ranks;
        status = load_pipeline(&pl, graph, argv[optind], &args->pipeline) ? run_checked(&pl, graph, args) : 2;
    }
    pst_pipeline_release(&pl);
    if (args) {
        pipeline_options_release(&args->pipeline);
        free(args->command);
    }
    free(graph);
    free(args);
    return status;
}
