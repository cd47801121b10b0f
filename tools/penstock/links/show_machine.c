/* show_machine.c: prints the devices of a machine, and the cliques that they form. */
#include "tools/penstock/links/show_machine.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/machine/machine.h"
#include "stages/lib/clique/cliques.h"
#include "tools/penstock/links/find_machine.h"

static pst_rc print_text(const struct pst_machine *m)
{
    char *text = pst_machine_text(m);
    if (text == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot describe the machine");
    (void)puts(text);
    free(text);
    return PST_OK;
}

static void print_cliques(const struct pst_machine *m)
{
    uint64_t links[PST_CLIQUES_MAX], clique[PST_CLIQUES_MAX];
    for (int i = 0; i < m->ndevices; i++)
        links[i] = m->device[i].links;
    const int n = m->ndevices > 0 ? pst_cliques_find(links, m->ndevices, clique) : 0;
    (void)printf("%s: %d device%s, %d clique%s\n", m->name, m->ndevices, m->ndevices == 1 ? "" : "s", n,
                 n == 1 ? "" : "s");
    for (int k = 0; k < n; k++) {
        (void)printf("clique %d, %d device%s:", k, __builtin_popcountll(clique[k]),
                     __builtin_popcountll(clique[k]) == 1 ? "" : "s");
        for (int i = 0; i < m->ndevices; i++)
            if (clique[k] >> i & 1)
                (void)printf(" %d", i);
        (void)putchar('\n');
    }
}

pst_rc pst_probe_machine(const char *file, bool cliques)
{
    struct pst_machine *m = calloc(1, sizeof *m);
    char why[PST_LINKS_WHY_BYTES] = "";
    if (m == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot describe the machine");
    pst_rc rc = file != NULL ? pst_probe_load(file, m) : pst_probe_topology(m, why);
    if (rc == PST_OK && file == NULL && m->ndevices == 0)
        (void)fprintf(stderr, "penstock probe: no GPUs: %s\n", why);
    if (rc == PST_OK && cliques)
        print_cliques(m);
    else if (rc == PST_OK)
        rc = print_text(m);
    free(m);
    return rc;
}
