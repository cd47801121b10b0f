/* bench.c: `penstock bench io`: how many requests a second a backend serves. */
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/nvme/emulated/emulated.h"
#include "common/nvme/stack/stack.h"
#include "stages/lib/accumulate/gate.h"
#include "tools/penstock/machine/bench_io.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

static const char help[] =
    "usage: penstock bench io [OPTION]...\n"
    "Moves requests at random places, checks every byte of each, and prints the rate.\n"
    "  --backend NAME    emulated (default), nvme, file, pread or mmap\n"
    "  --stack NAME      emulated and nvme: async (default), sync or batch\n"
    "  --bytes SIZE      bytes of a request (4KiB)       --span SIZE  bytes of each SSD, or of the file "
    "(64MiB)\n"
    "  --depth N         requests in flight (128)        --seconds S  time of transfers, at least (1)\n"
    "  --burst           rounds of --depth requests at once, instead of --depth always in flight\n"
    "  --accesses SHARE  move nothing: print how many accesses at once reach this share of the peak, with "
    "the "
    "times\n"
    "                    of GIDS: 25 us to start a kernel, the drive's latency, 5 us to the end\n"
    "  --ssds N          1 to 16 (1)                     --queues N   queue pairs of each SSD (1)\n"
    "  --threads N       threads that submit; each has its own --depth, --queues and --lanes (1)\n"
    "  --lanes N         threads that share a submission (1); stack sync: requests at once (--depth)\n"
    "  --write           emulated: write, and read back\n"
    "  --preset NAME     emulated: none (default), optane, 980pro or p5510\n"
    "  --dilate F        emulated: the model's time runs F times slower (1)\n"
    "  --bus N           emulated: bytes a second of a bus that all SSDs share, also slower by --dilate (no "
    "limit)\n"
    "  --workers N       emulated: threads of the controllers (1)\n"
    "  --emulated JSON   emulated: more of its configuration\n"
    "  --drives LIST     nvme: PCI addresses, separated by commas; they are only read\n"
    "  --file PATH       file, pread, mmap: created if it does not exist\n"
    "  --json            print JSON\n"
    "A SIZE is a number of bytes, for example 4096, 512K or 64MiB.\n";

enum {
    O_BACKEND = 256,
    O_STACK,
    O_BYTES,
    O_DEPTH,
    O_BURST,
    O_ACCESSES,
    O_SSDS,
    O_QUEUES,
    O_THREADS,
    O_LANES,
    O_WRITE,
    O_SECONDS,
    O_SPAN,
    O_PRESET,
    O_DILATE,
    O_WORKERS,
    O_BUS,
    O_EMULATED,
    O_DRIVES,
    O_FILE,
    O_JSON,
    O_HELP
};

static pst_rc size(const char *name, uint64_t high, uint64_t *out)
{
    pst_rc rc = option_bytes(name, optarg, out);
    if (rc == PST_OK && (*out < 512 || *out > high))
        rc = pst_fail(PST_E_ARG, "%s: expected 512 to %" PRIu64 " bytes, found '%.64s'", name, high, optarg);
    return rc;
}

static pst_rc real(const char *name, double low, double high, double *out)
{
    pst_rc rc = option_real(name, optarg, out);
    if (rc == PST_OK && (*out < low || *out > high))
        rc = pst_fail(PST_E_ARG, "%s: expected %g to %g, found '%.64s'", name, low, high, optarg);
    return rc;
}

static pst_rc count(const char *name, uint32_t high, uint32_t *out)
{
    int64_t value = 0;
    pst_rc rc = option_int(name, optarg, 1, high, &value);
    *out = (uint32_t)value;
    return rc;
}

#define LAUNCH_US 25
#define TERMINAL_US 5

/* N_access of each preset, or of one (stages/lib/accumulate/gate.h). */
static pst_rc print_accesses(const struct pst_bench_io *o, double share)
{
    static const char *const presets[] = {"optane", "980pro", "p5510"};
    const bool one = strcmp(o->preset, "none") != 0;
    printf("accesses at once that reach %.4g of the peak of %u SSD%s:\n", share, o->ssds,
           o->ssds > 1 ? "s" : "");
    pst_rc rc = PST_OK;
    for (size_t i = 0; i < (one ? 1 : sizeof presets / sizeof *presets) && rc == PST_OK; i++) {
        char json[64];
        struct pst_nvme_emulated_speed speed;
        const char *name = one ? o->preset : presets[i];
        (void)snprintf(json, sizeof json, "{\"preset\": \"%.32s\"}", name);
        rc = pst_nvme_emulated_speed_of(&speed, json);
        const struct pst_burst b = {.iop_peak = speed.iops,
                                    .ssds = o->ssds,
                                    .overhead_s = speed.latency_s + (LAUNCH_US + TERMINAL_US) * 1e-6};
        if (rc == PST_OK)
            printf("  %-8s %8.0f  (%.0f IOPS, T_i %.0f us, T_t %d us)\n", name,
                   round(pst_burst_accesses(&b, share)), speed.iops, speed.latency_s * 1e6 + LAUNCH_US,
                   TERMINAL_US);
    }
    return rc;
}

static pst_rc take_option(int opt, struct pst_bench_io *o, bool *json, double *share)
{
    switch (opt) {
    case O_ACCESSES: return real("--accesses", 0.001, 0.999, share);
    case O_BACKEND: o->backend = pst_io_backend_named(optarg); return o->backend != NULL ? PST_OK : PST_E_ARG;
    case O_STACK: o->stack = optarg; return pst_nvme_way_named(optarg, &o->way);
    case O_BYTES: return size("--bytes", 256u << 20, &o->bytes);
    case O_DEPTH: return count("--depth", 65536, &o->depth);
    case O_BURST: o->burst = true; return PST_OK;
    case O_SSDS: return count("--ssds", 16, &o->ssds);
    case O_QUEUES: return count("--queues", 128, &o->queues);
    case O_THREADS: return count("--threads", PST_BENCH_THREADS_MAX, &o->threads);
    case O_LANES: return count("--lanes", PST_NVME_LANES_MAX, &o->lanes);
    case O_WRITE: o->write = true; return PST_OK;
    case O_SECONDS: return real("--seconds", 0.001, 3600, &o->seconds);
    case O_SPAN: return size("--span", 1ull << 54, &o->span);
    case O_PRESET: o->preset = optarg; return PST_OK;
    case O_DILATE: return real("--dilate", 1, 1e6, &o->dilate);
    case O_BUS: return real("--bus", 1, 1e15, &o->bus_bytes_per_s);
    case O_WORKERS: return count("--workers", 16, &o->workers);
    case O_EMULATED: o->emulated = optarg; return PST_OK;
    case O_DRIVES: o->drives = optarg; return PST_OK;
    case O_FILE: o->path = optarg; return PST_OK;
    case O_JSON: *json = true; return PST_OK;
    default: return pst_fail(PST_E_ARG, "invalid option: `penstock bench --help` lists the options");
    }
}

static pst_rc complete(struct pst_bench_io *o)
{
    const bool drives = o->backend->dma;
    if (o->lanes == 0)
        o->lanes = o->way == PST_NVME_SYNC ? o->depth : 1;
    if (o->bytes % 512 != 0 || o->span < o->bytes)
        return pst_fail(PST_E_ARG,
                        "--bytes is %" PRIu64 "; expected a multiple of 512, at most --span (%" PRIu64 ")",
                        o->bytes, o->span);
    if (!drives && o->path == NULL)
        return pst_fail(PST_E_ARG, "--backend %s needs --file PATH", o->backend->name);
    if (!drives && o->ssds != 1)
        return pst_fail(
            PST_E_ARG, "--ssds works only with the backends emulated and nvme; the backend %s reads one file",
            o->backend->name);
    if (o->backend == &pst_io_nvme_ops && o->drives == NULL)
        return pst_fail(PST_E_ARG, "--backend nvme needs --drives; `penstock disks` lists the drives");
    if (!drives && o->write)
        return pst_fail(PST_E_ARG,
                        "--write works only with emulated drives: the benchmark never writes to files");
    return PST_OK;
}

static void print_text(const struct pst_bench_io *o, const struct pst_bench_io_result *r)
{
    printf("%s %s%s, %s of %" PRIu64 " bytes, %u thread%s, depth %u, %u SSD%s: every byte of %" PRIu64
           " requests is right\n",
           o->backend->name, r->commands > 0 ? o->stack : "", o->burst ? " (bursts)" : "",
           o->write ? "writes" : "reads", o->bytes, o->threads, o->threads > 1 ? "s" : "", o->depth, o->ssds,
           o->ssds > 1 ? "s" : "", r->checked);
    printf("  %.0f requests/s, %.1f MB/s\n", r->iops, r->iops * (double)o->bytes * 1e-6);
    printf("  latency us: mean %.1f, median %.1f, 99 %% %.1f, 99.9 %% %.1f, most %.1f\n", r->latency_us[0],
           r->latency_us[1], r->latency_us[2], r->latency_us[3], r->latency_us[4]);
    printf("  %.0f cycles a request%s, %.0f ns of processor time\n", r->cycles,
           r->commands > 0 ? " in the driver, empty looks not counted" : "", r->cpu_ns);
    if (r->commands > 0)
        printf("  %" PRIu64 " commands, %" PRIu64 " SQ and %" PRIu64 " CQ doorbells, %" PRIu64
               " retries, %" PRIu64 " resets\n",
               r->commands, r->sq_doorbells, r->cq_doorbells, r->retries, r->resets);
    if (r->lanes_needed > 0)
        printf("  P_s: %u thread%s that need %.0f ns a request keep the undilated drives busy\n",
               r->lanes_needed, r->lanes_needed > 1 ? "s" : "", r->driver_ns);
}

static void print_json(const struct pst_bench_io *o, const struct pst_bench_io_result *r)
{
    printf("{\"backend\": \"%s\", \"stack\": \"%s\", \"bytes\": %" PRIu64 ", \"depth\": %u, \"ssds\": %u, "
           "\"threads\": %u, \"lanes\": %u, \"requests\": %" PRIu64 ", \"checked\": %" PRIu64
           ", \"seconds\": %.6f, \"iops\": %.1f, \"bytes_per_s\": %.1f, "
           "\"latency_us\": {\"mean\": %.3f, \"p50\": %.3f, \"p99\": %.3f, \"p999\": %.3f, \"max\": %.3f}, "
           "\"cycles\": %.1f, \"cpu_ns\": %.1f, \"driver_ns\": %.1f, \"commands\": %" PRIu64
           ", \"sq_doorbells\": %" PRIu64 ", \"cq_doorbells\": %" PRIu64 ", \"retries\": %" PRIu64
           ", \"resets\": %" PRIu64 ", \"p_s\": %u}\n",
           o->backend->name, o->stack, o->bytes, o->depth, o->ssds, o->threads, o->lanes, r->requests,
           r->checked, r->seconds, r->iops, r->iops * (double)o->bytes, r->latency_us[0], r->latency_us[1],
           r->latency_us[2], r->latency_us[3], r->latency_us[4], r->cycles, r->cpu_ns, r->driver_ns,
           r->commands, r->sq_doorbells, r->cq_doorbells, r->retries, r->resets, r->lanes_needed);
}

int cmd_bench(int argc, char **argv)
{
    static const struct option options[] = {{"backend", 1, NULL, O_BACKEND},
                                            {"stack", 1, NULL, O_STACK},
                                            {"bytes", 1, NULL, O_BYTES},
                                            {"depth", 1, NULL, O_DEPTH},
                                            {"burst", 0, NULL, O_BURST},
                                            {"ssds", 1, NULL, O_SSDS},
                                            {"accesses", 1, NULL, O_ACCESSES},
                                            {"queues", 1, NULL, O_QUEUES},
                                            {"lanes", 1, NULL, O_LANES},
                                            {"threads", 1, NULL, O_THREADS},
                                            {"write", 0, NULL, O_WRITE},
                                            {"seconds", 1, NULL, O_SECONDS},
                                            {"span", 1, NULL, O_SPAN},
                                            {"preset", 1, NULL, O_PRESET},
                                            {"dilate", 1, NULL, O_DILATE},
                                            {"workers", 1, NULL, O_WORKERS},
                                            {"emulated", 1, NULL, O_EMULATED},
                                            {"drives", 1, NULL, O_DRIVES},
                                            {"file", 1, NULL, O_FILE},
                                            {"bus", 1, NULL, O_BUS},
                                            {"json", 0, NULL, O_JSON},
                                            {"help", 0, NULL, O_HELP},
                                            {NULL, 0, NULL, 0}};
    struct pst_bench_io o = {.backend = &pst_io_emulated_ops,
                             .stack = "async",
                             .preset = "none",
                             .emulated = "",
                             .dilate = 1,
                             .seconds = 1,
                             .bytes = 4096,
                             .span = 64u << 20,
                             .depth = 128,
                             .threads = 1,
                             .ssds = 1,
                             .queues = 1,
                             .workers = 1};
    struct pst_bench_io_result result;
    bool json = false;
    double share = 0; /* above 0: only --accesses */
    pst_rc rc = PST_OK;
    int opt;
    optind = 1;
    while (rc == PST_OK && (opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (opt == O_HELP) {
            (void)fputs(help, stdout);
            return 0;
        }
        rc = take_option(opt, &o, &json, &share);
    }
    if (rc == PST_OK && (argc - optind != 1 || strcmp(argv[optind], "io") != 0))
        rc = pst_fail(PST_E_ARG, "expected `penstock bench io`; `penstock bench --help` lists the options");
    if (rc == PST_OK && share > 0)
        return command_result("bench", print_accesses(&o, share));
    rc = rc == PST_OK ? complete(&o) : rc;
    rc = rc == PST_OK ? pst_bench_io(&o, &result) : rc;
    if (rc == PST_OK)
        (json ? print_json : print_text)(&o, &result);
    return command_result("bench", rc);
}
