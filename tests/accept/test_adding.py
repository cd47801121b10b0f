"""Adding a stage, a format, a sampling algorithm or a kernel takes one new file and at most one line elsewhere (a kernel:
its declaration, and its twin). Each is added here to a copy of the tree, is built by the unchanged Makefile, and works."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pipeline"))
from harness import *

STAGE = open(os.path.join(ROOT, "stages", "passthrough.c")).read().replace('"passthrough"', '"again"')

FORMAT = r"""/* ring.c: the format "ring": a file that holds the number of vertices of a ring. */
#include <stdio.h>

#include "common/error.h"
#include "common/store/import/import.h"
#include "common/store/import/job.h"

static pst_rc feed(void *ctx, struct pst_csc_builder *csc, int64_t *vertices, struct pst_progress *progress)
{
    *vertices = *(const int64_t *)ctx;
    (void)progress;
    const int64_t n = *(const int64_t *)ctx;
    pst_rc rc = PST_OK;
    for (int64_t v = 0; v < n && rc == PST_OK; v++) {
        const int64_t source = v, target = (v + 1) % n;
        rc = pst_csc_builder_add(csc, &source, &target, NULL, 1);
    }
    return rc;
}

static pst_rc import_ring(struct pst_import_job *job)
{
    long long n = 0;
    FILE *f = fopen(job->from, "r");
    if (f == NULL)
        return pst_fail_errno("cannot open %s", job->from);
    const bool good = fscanf(f, "%lld", &n) == 1 && n > 1;
    (void)fclose(f);
    if (!good)
        return pst_fail(PST_E_FORMAT, "%s: expected a number of vertices above 1", job->from);
    int64_t vertices = n;
    struct pst_import_spec spec = job->spec;
    pst_import_name(&spec, job->from);
    spec.feed = feed;
    spec.feed_ctx = &vertices;
    return pst_import(&spec, job->build, job->result, job->progress);
}

const struct pst_import_format pst_format_ring = {"ring", "a ring: a file with its number of vertices", import_ring};
"""

ALGORITHM = r"""/* first.c: the first neighbours of each vertex, instead of random ones. */
#include "common/error.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    (void)state;
    int64_t drawn = 0;
    for (int64_t i = 0; i < h->n; i++) {
        h->indptr[i] = (int32_t)drawn;
        const int64_t begin = h->graph->indptr[h->vertices[i]], end = h->graph->indptr[h->vertices[i] + 1];
        for (int64_t e = begin; e < end && (h->fanout < 0 || e - begin < h->fanout); e++) {
            if (drawn == h->capacity)
                return pst_fail(PST_E_LIMIT, "more than %lld neighbours", (long long)h->capacity);
            h->out[drawn++] = h->graph->index_bytes == 8 ? ((const int64_t *)h->graph->indices)[e]
                                                         : ((const int32_t *)h->graph->indices)[e];
        }
    }
    h->indptr[h->n] = (int32_t)drawn;
    return PST_OK;
}

const struct pst_sampling_algorithm pst_sampling_first = {
    .abi = PST_SAMPLING_ABI,
    .name = "first",
    .help = "the first neighbours of each vertex",
    .draw = draw,
};
"""

KERNEL = r"""/* negate.c: x = -x. */
#include "kernels/kernels.h"

void pst_k_negate(struct pst_queue *q, pst_real *x, int64_t n)
{
    (void)q;
    for (int64_t i = 0; i < n; i++)
        x[i] = -x[i];
}
"""
KERNEL_DECLARATION = "PST_API void pst_k_negate(struct pst_queue *q, pst_real *x, int64_t n);\n"
KERNEL_CUDA = r"""/* negate.cu: x = -x. */
#include "kernels/cuda/queue.cuh"

static __global__ void negate(pst_real *x, int64_t n)
{
    for (int64_t i = pst_cu_first(); i < n; i += pst_cu_step())
        x[i] = -x[i];
}

void pst_k_negate(struct pst_queue *q, pst_real *x, int64_t n)
{
    pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS))(negate, x, n);
}
"""
KERNEL_TEST = r"""/* Both twins of pst_k_negate. */
#include "tests/kernel/twin_fixture.h"

static void test_negate(void **state)
{
    (void)state;
    FOR_SHAPES
    {
        const int64_t n = size_below(TWIN_MOST);
        struct both x = both_new((size_t)n * sizeof(float));
        fill_floats(&x);
        send(&x);
        const float first = n > 0 ? *(float *)x.host : 0;
        cpu->negate(NULL, x.host, n);
        cuda->negate(queue, x.device, n);
        same_bytes(&x, x.bytes, "negate");
        assert_true(n == 0 || *(float *)x.host == -first);
        both_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_negate)};
    return cmocka_run_group_tests(tests, twin_setup, twin_teardown);
}
"""


class Copy(Place):
    """The tree as it stands, with what is built of it."""
    def __enter__(self):
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True)
        self.root = self.path("penstock")
        for name in listed.stdout.splitlines():
            if os.path.isfile(os.path.join(ROOT, name)):
                os.makedirs(os.path.join(self.root, os.path.dirname(name)), exist_ok=True)
                shutil.copy2(os.path.join(ROOT, name), os.path.join(self.root, name))
        shutil.copytree(BUILD, os.path.join(self.root, "build"), symlinks=True)
        return self

    def add(self, name, text):
        path = os.path.join(self.root, name)
        assert not os.path.exists(path), name
        with open(path, "w") as f:
            f.write(text)

    def insert(self, name, after, line):
        """One line below the one that holds `after`."""
        path = os.path.join(self.root, name)
        with open(path) as f:
            lines = f.readlines()
        at = [i for i, text in enumerate(lines) if after in text]
        assert len(at) == 1, (name, after, at)
        lines.insert(at[0] + 1, line)
        with open(path, "w") as f:
            f.writelines(lines)

    def replace(self, name, old, new):
        """One line in another form."""
        path = os.path.join(self.root, name)
        with open(path) as f:
            text = f.read()
        assert text.count(old) == 1 and old.count("\n") <= 1, (name, old)
        with open(path, "w") as f:
            f.write(text.replace(old, new))

    def make(self, *targets):
        r = subprocess.run(["make", "-s", "-j2", "BUILD=build", "NVCC=", *targets], cwd=self.root, capture_output=True, text=True)
        assert r.returncode == 0, r.stdout[-3000:] + r.stderr[-3000:]

    def penstock(self, *args, code=0):
        r = subprocess.run([os.path.join(self.root, "build", "bin", "penstock"), *map(str, args)], capture_output=True, text=True,
                           cwd=self.dir)
        assert r.returncode == code, (args, r.stdout, r.stderr)
        return r.stdout + r.stderr


@test
def a_stage_a_format_an_algorithm_and_a_kernel():
    with Copy() as c:
        c.add("stages/again.c", STAGE)

        c.add("common/store/formats/text/ring.c", FORMAT)
        c.replace("common/store/formats/formats.h", "    FORMAT(planetoid)\n", "    FORMAT(planetoid) FORMAT(ring)\n")

        c.add("stages/lib/sampling/algorithms/first.c", ALGORITHM)
        c.replace("stages/lib/sampling/algorithms/algorithms.h", " X(uniform) X(labor)", " X(uniform) X(first) X(labor)")

        c.add("kernels/cpu/negate.c", KERNEL)
        c.add("kernels/cuda/negate.cu", KERNEL_CUDA)
        c.insert("kernels/kernels.h", "pst_real *m, pst_real *v, int64_t n);", KERNEL_DECLARATION)
        c.insert("kernels/twin.h", "    X(affine)", "    X(negate) \\\n")
        c.add("tests/kernel/test_twin_negate.c", KERNEL_TEST)

        c.make("all", "build/tests/libpenstock-cuda-host.so", "build/tests/kernel/test_twin_negate")

        assert "again" in c.penstock("stages")
        assert "a ring: a file" in c.penstock("import", "--help")
        with open(c.path("ring.txt"), "w") as f:
            f.write("500")
        c.penstock("import", "ring", c.path("ring.txt"), c.path("ring"))
        c.penstock("verify", c.path("ring"))
        assert "500" in c.penstock("inspect", c.path("ring"))

        c.penstock("gen", "community", c.path("data"), "--vertices", "2000", "--seed", "3")
        digests = {}
        for algorithm in ("uniform", "first"):
            c.penstock("run", os.path.join(ROOT, "pipelines", "hyperion.json"), "--dataset", c.path("data"), "--epochs", 1, "--seed", 1,
                       "--set", f"params.algorithm={algorithm}", "--run-dir", c.path(algorithm))
            with open(c.path(f"{algorithm}/report.json")) as f:
                report = json.load(f)
            with open(c.path(f"{algorithm}/plan/plan.json")) as f:
                plan = json.load(f)
            assert report["status"] == "ok" and plan["algorithm"] == algorithm, (report, plan)
            digests[algorithm] = report["digest"]
        assert digests["uniform"] != digests["first"], digests

        r = subprocess.run(["build/tests/kernel/test_twin_negate"], cwd=c.root, env={**os.environ, "BUILD": "build"}, capture_output=True,
                           text=True)
        assert r.returncode == 0, r.stdout + r.stderr


if __name__ == "__main__":
    main()
