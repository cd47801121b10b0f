/* machine.c: reads, checks and writes machine files. */
#include "common/machine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/json/keys.h"

#define VERSION 1

struct reader {
    const struct pst_json *doc;
    struct pst_diag *diag;
    struct pst_machine *machine;
};

static void element(char out[PST_JSON_PATH_MAX], const char *list, size_t i)
{
    (void)snprintf(out, PST_JSON_PATH_MAX, "%s[%zu]", list, i);
}

/* Calls `read` for each object of a list. */
static void read_list(struct reader *r, const json_t *list, const char *path, size_t most,
                      void (*read)(struct reader *r, const json_t *object, const char *path, size_t i))
{
    const size_t n = json_array_size(list);
    char at[PST_JSON_PATH_MAX];
    if (n > most)
        pst_json_error(r->doc, r->diag, path, "expected at most %zu, found %zu", most, n);
    for (size_t i = 0; i < n && i < most; i++) {
        const json_t *object = json_array_get(list, i);
        element(at, path, i);
        if (json_is_object(object))
            read(r, object, at, i);
        else
            pst_json_error(r->doc, r->diag, at, "expected an object, found %s", pst_json_kind(object));
    }
}

static void read_socket(struct reader *r, const json_t *object, const char *path, size_t i)
{
    struct pst_machine_socket *s = &r->machine->socket[i];
    double bytes = 0;
    const struct pst_json_key keys[] = {
        {"cores", PST_JSON_COUNT, .needed = true, .most = PST_MACHINE_CORES_MAX, .to = &s->cores},
        {"memory_bytes", PST_JSON_NUMBER, .needed = true, .to = &bytes},
    };
    pst_json_keys(r->doc, r->diag, object, path, keys, sizeof keys / sizeof *keys);
    s->memory_bytes = bytes < 0x1p63 ? (uint64_t)bytes : 0;
}

/* A link to device `value` of the device that is number `self`. */
static void read_link(struct reader *r, const json_t *value, const char *path, size_t self)
{
    const json_int_t other = json_integer_value(value);
    uint64_t *links = &r->machine->device[self].links;
    if (!json_is_integer(value) || other < 0 || other >= r->machine->ndevices)
        pst_json_error(r->doc, r->diag, path, "expected the number of a device, from 0 to %d",
                       r->machine->ndevices - 1);
    else if ((size_t)other == self)
        pst_json_error(r->doc, r->diag, path, "device %zu is linked with itself: remove the link", self);
    else if (*links >> other & 1)
        pst_json_error(r->doc, r->diag, path, "device %zu has this link twice: remove one of the two", self);
    else
        *links |= UINT64_C(1) << other;
}

static void read_device(struct reader *r, const json_t *object, const char *path, size_t i)
{
    struct pst_machine_device *d = &r->machine->device[i];
    const char *model = "";
    json_t *links = NULL;
    double bytes = 0;
    char at[PST_JSON_PATH_MAX], link[PST_JSON_PATH_MAX];
    const struct pst_json_key keys[] = {
        {"model", PST_JSON_TEXT, .to = &model},
        {"socket", PST_JSON_COUNT, .needed = true, .zero = true, .most = PST_MACHINE_SOCKETS_MAX - 1,
         .to = &d->socket},
        {"memory_bytes", PST_JSON_NUMBER, .needed = true, .to = &bytes},
        {"links", PST_JSON_ARRAY, .needed = true, .to = &links},
    };
    pst_json_keys(r->doc, r->diag, object, path, keys, sizeof keys / sizeof *keys);
    (void)snprintf(d->model, sizeof d->model, "%s", model);
    d->memory_bytes = bytes < 0x1p63 ? (uint64_t)bytes : 0;
    if (d->socket >= r->machine->nsockets) {
        pst_json_join(at, path, "socket");
        pst_json_error(r->doc, r->diag, at, "there is no socket %d: the list \"sockets\" has only %d",
                       d->socket, r->machine->nsockets);
    }
    pst_json_join(at, path, "links");
    for (size_t k = 0; k < json_array_size(links); k++) {
        element(link, at, k);
        read_link(r, json_array_get(links, k), link, i);
    }
}

static void check_links(struct reader *r)
{
    const struct pst_machine *m = r->machine;
    for (int i = 0; i < m->ndevices; i++)
        for (int k = 0; k < m->ndevices; k++)
            if ((m->device[i].links >> k & 1) && !(m->device[k].links >> i & 1)) {
                char at[PST_JSON_PATH_MAX];
                (void)snprintf(at, sizeof at, "devices[%d].links", i);
                pst_json_error(r->doc, r->diag, at,
                               "device %d lists device %d, but not the reverse: a link must be in both lists",
                               i, k);
            }
}

static void read_all(struct reader *r, const json_t *root)
{
    struct pst_machine *m = r->machine;
    const char *name = "";
    json_t *sockets = NULL, *devices = NULL;
    int version = VERSION;
    const struct pst_json_key keys[] = {
        {"machine", PST_JSON_COUNT, .needed = true, .most = VERSION, .to = &version},
        {"name", PST_JSON_TEXT, .needed = true, .to = &name},
        {"sockets", PST_JSON_ARRAY, .needed = true, .to = &sockets},
        {"devices", PST_JSON_ARRAY, .needed = true, .to = &devices},
    };
    pst_json_keys(r->doc, r->diag, root, "", keys, sizeof keys / sizeof *keys);
    (void)snprintf(m->name, sizeof m->name, "%s", name);
    m->nsockets = (int)pst_min_i64((int64_t)json_array_size(sockets), PST_MACHINE_SOCKETS_MAX);
    m->ndevices = (int)pst_min_i64((int64_t)json_array_size(devices), PST_MACHINE_DEVICES_MAX);
    if (sockets != NULL && m->nsockets == 0)
        pst_json_error(r->doc, r->diag, "sockets", "expected at least one socket");
    read_list(r, sockets, "sockets", PST_MACHINE_SOCKETS_MAX, read_socket);
    read_list(r, devices, "devices", PST_MACHINE_DEVICES_MAX, read_device);
    check_links(r);
}

bool pst_machine_load(struct pst_machine *machine, const char *file, struct pst_diag *diag)
{
    struct pst_json doc;
    struct reader r = {.doc = &doc, .diag = diag, .machine = machine};
    const size_t before = diag->count;
    memset(machine, 0, sizeof *machine);
    if (pst_json_load(&doc, file, diag))
        read_all(&r, doc.root);
    pst_json_release(&doc);
    return diag->count == before;
}

static json_t *links_of(uint64_t links)
{
    json_t *list = json_array();
    for (int i = 0; i < PST_MACHINE_DEVICES_MAX; i++)
        if (links >> i & 1)
            (void)json_array_append_new(list, json_integer(i));
    return list;
}

int pst_machine_device(const struct pst_machine *m, const char *place)
{
    const char *colon = strchr(place, ':');
    const long number = colon ? strtol(colon + 1, NULL, 10) - (strncmp(place, "cuda:", 5) != 0) : -1;
    return number >= 0 && number < m->ndevices ? (int)number : -1;
}

char *pst_machine_text(const struct pst_machine *m)
{
    json_t *sockets = json_array(), *devices = json_array();
    for (int i = 0; i < m->nsockets; i++)
        (void)json_array_append_new(sockets,
                                    json_pack("{s:i, s:I}", "cores", m->socket[i].cores, "memory_bytes",
                                              (json_int_t)m->socket[i].memory_bytes));
    for (int i = 0; i < m->ndevices; i++) {
        const struct pst_machine_device *d = &m->device[i];
        (void)json_array_append_new(devices, json_pack("{s:s, s:i, s:I, s:o}", "model", d->model, "socket",
                                                       d->socket, "memory_bytes", (json_int_t)d->memory_bytes,
                                                       "links", links_of(d->links)));
    }
    json_t *root = json_pack("{s:i, s:s, s:o, s:o}", "machine", VERSION, "name", m->name, "sockets", sockets,
                             "devices", devices);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    return text;
}
