/* foreign_hear.c: what a foreign stage's program says, checked and done. */
#include <inttypes.h>
#include <string.h>

#include "common/host/foreign_impl.h"

static pst_rc hear_done(struct pst_stage *self)
{
    struct pst_host_foreign *f = pst_state(self);
    if (!f->started)
        return pst_fail(PST_E_PEER, "external program %s sent \"done\" before \"start\"", self->caps.file);
    const pst_rc rc = pst_host_hand_done(self, &f->hand);
    if (rc != PST_OK)
        return rc;
    f->done = true;
    self->keep_alive = 0;
    self->timer_at = 0;
    return PST_OK;
}

static pst_rc hear_report(struct pst_stage *self, const json_t *message)
{
    const char *section = json_string_value(json_object_get(message, "section"));
    json_t *data = json_object_get(message, "data");
    if (!section || !json_is_object(data))
        return pst_fail(
            PST_E_PEER,
            "external program %s sent a report without a \"section\" (a string) or \"data\" (an object)",
            self->caps.file);
    const pst_rc rc =
        pst_control_send(self, json_pack("{ss ss sO}", "type", "report", "section", section, "data", data));
    return rc == PST_OK && strcmp(section, "epochs") == 0 ? pst_control_epoch(self) : rc;
}

/* The port of the message, if it is an output that this kind of message can name. */
static int port_of(const struct pst_stage *self, const json_t *message, bool oneshot)
{
    const char *name = json_string_value(json_object_get(message, "port"));
    const int port = name ? pst_desc_port(&self->desc, name) : -1;
    if (port < 0 || self->desc.ports[port].dir != PST_OUT || self->desc.ports[port].forwards ||
        ((self->desc.ports[port].flags & PST_PORT_ONESHOT) != 0) != oneshot)
        return -1;
    return port;
}

static pst_rc hear_total(struct pst_stage *self, const json_t *message)
{
    const struct pst_host_foreign *f = pst_state(self);
    const json_t *batches = json_object_get(message, "batches");
    const int port = port_of(self, message, false);
    if (port < 0 || !json_is_integer(batches) || json_integer_value(batches) < 0)
        return pst_fail(PST_E_PEER,
                        "external program %s sent a \"total\" without a \"port\" (an output that fills "
                        "slots) or \"batches\" (a whole number)",
                        self->caps.file);
    if (!f->open)
        return pst_fail(PST_E_PEER, "external program %s sent a \"total\" before it got \"open\"",
                        self->caps.file);
    pst_total(self, port, (uint64_t)json_integer_value(batches));
    return PST_OK;
}

static pst_rc hear_publish(struct pst_stage *self, const json_t *message)
{
    const char *path = json_string_value(json_object_get(message, "path"));
    const int port = port_of(self, message, true);
    if (port < 0 || !path)
        return pst_fail(PST_E_PEER,
                        "external program %s sent \"publish\" without \"port\" (the name of a one-shot "
                        "output) or \"path\"",
                        self->caps.file);
    return pst_publish(self, port, path);
}

static pst_rc hear_patience(struct pst_stage *self, const json_t *message)
{
    struct pst_host_foreign *f = pst_state(self);
    const json_t *seconds = json_object_get(message, "seconds");
    const double s = json_number_value(seconds);
    if (!json_is_number(seconds) || !(s >= 0 && s <= PST_HOST_PATIENCE_S_MAX))
        return pst_fail(PST_E_PEER,
                        "external program %s sent \"patience\" without \"seconds\" (a number from 0 to %d)",
                        self->caps.file, PST_HOST_PATIENCE_S_MAX);
    f->patience_ms = (int)(s * 1e3);
    return PST_OK;
}

pst_rc pst_host_hear_json(struct pst_stage *self, const json_t *message)
{
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *text = json_string_value(json_object_get(message, "text"));
    if (!type)
        return pst_fail(PST_E_PEER, "external program %s sent a JSON message without \"type\"",
                        self->caps.file);
    if (strcmp(type, "done") == 0)
        return hear_done(self);
    if (strcmp(type, "failed") == 0)
        return pst_fail(PST_E_PEER, "%s", text ? text : "the external program failed without a message");
    if (strcmp(type, "report") == 0)
        return hear_report(self, message);
    if (strcmp(type, "patience") == 0)
        return hear_patience(self, message);
    if (strcmp(type, "total") == 0)
        return hear_total(self, message);
    if (strcmp(type, "publish") == 0)
        return hear_publish(self, message);
    if (strcmp(type, "log") == 0)
        pst_log(self, "%s", text ? text : "");
    else if (strcmp(type, "warning") == 0)
        pst_warn(self, "%s", text ? text : "");
    else
        return pst_fail(PST_E_PEER, "external program %s sent an unexpected message \"%.40s\"",
                        self->caps.file, type);
    return PST_OK;
}

static pst_rc hear_frame(struct pst_stage *self, int port, const struct pst_frame *frame)
{
    struct pst_host_foreign *f = pst_state(self);
    const struct pst_port_desc *desc = &self->desc.ports[port];
    if (desc->dir != PST_OUT || (desc->flags & PST_PORT_ONESHOT))
        return pst_fail(PST_E_PEER,
                        "external program %s sent a frame through %s, which is not an output for frames: "
                        "expected an output that is not one-shot",
                        self->caps.file, desc->name);
    const pst_rc rc = pst_host_hand_send(self, &f->hand, port, frame);
    return rc == PST_OK ? pst_send(self, port, frame) : rc;
}

static pst_rc hear_release(struct pst_stage *self, const struct pst_frame *frame)
{
    struct pst_host_foreign *f = pst_state(self);
    pst_rc rc = PST_OK;
    for (uint32_t i = 0; i < frame->nrefs && rc == PST_OK; i++) {
        rc = pst_host_hand_give_back(self, &f->hand, frame->refs[i]);
        if (rc == PST_OK)
            rc = pst_release(self, frame->refs[i], (frame->flags & 1) != 0);
    }
    return rc;
}

static pst_rc hear_binary(struct pst_stage *self, const char *bytes, size_t n)
{
    const struct pst_host_foreign *f = pst_state(self);
    struct pst_wire w = {0};
    if (n >= sizeof w)
        memcpy(&w, bytes, sizeof w);
    if (w.magic != PST_WIRE_MAGIC || w.nrefs > PST_REFS_MAX ||
        n != sizeof w + w.nrefs * sizeof(struct pst_ref) || w.port >= pst_desc_ports(&self->desc))
        return pst_fail(PST_E_PEER, "external program %s sent %zu bytes that are not a valid binary message",
                        self->caps.file, n);
    if (!f->started)
        return pst_fail(PST_E_PEER, "external program %s sent a binary message before \"start\"",
                        self->caps.file);
    struct pst_frame frame = {.batch = w.batch,
                              .micro = w.micro,
                              .part = w.part,
                              .flags = w.flags,
                              .nrefs = w.nrefs,
                              .arg = {w.arg[0], w.arg[1]}};
    memcpy(frame.refs, bytes + sizeof w, w.nrefs * sizeof(struct pst_ref));
    switch (w.kind) {
    case PST_WIRE_FRAME: return hear_frame(self, w.port, &frame);
    case PST_WIRE_RELEASE: return hear_release(self, &frame);
    case PST_WIRE_COUNT: pst_count(self, w.arg[0], w.arg[1]); return PST_OK;
    default:
        return pst_fail(PST_E_PEER,
                        "external program %s sent a binary message of kind %u; expected 1 (frame), 3 "
                        "(release) or 5 (count)",
                        self->caps.file, w.kind);
    }
}

pst_rc pst_host_hear(struct pst_stage *self, const char *bytes, size_t n)
{
    if (n > PST_WIRE_MAX_BYTES)
        return pst_fail(PST_E_PEER, "external program %s sent a message of %zu bytes; at most %d are allowed",
                        self->caps.file, n, PST_WIRE_MAX_BYTES);
    if (n == 0 || bytes[0] != '{')
        return hear_binary(self, bytes, n);
    json_error_t error;
    json_t *message = json_loadb(bytes, n, 0, &error);
    const pst_rc rc = message ? pst_host_hear_json(self, message)
                              : pst_fail(PST_E_PEER, "external program %s sent invalid JSON: %s",
                                         self->caps.file, error.text);
    json_decref(message);
    return rc;
}
