/* probe_pair.h: two processes that try CUDA for the caller, which never uses it: one makes memory and events,
 * the other opens them. */
#ifndef PST_PROBE_PAIR_H
#define PST_PROBE_PAIR_H

#include "common/base.h"

/* Runs make(message, shared) in one process, which lives until all is done. If it returns true, runs
 * open_all(message) in another process, with the message (`bytes` of it) that make left. The caller gets the
 * last answer. PST_E_IO: a process could not be started. PST_E_TIMEOUT: it did not answer. PST_E_PEER: it
 * died. */
PST_MUST_USE pst_rc pst_probe_pair(bool (*make)(void *message, void *shared), void (*open_all)(void *message),
                                   void *message, size_t bytes, void *shared);

#endif
