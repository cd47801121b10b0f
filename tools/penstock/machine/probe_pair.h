/* probe_pair.h: two processes that try CUDA for the caller, which never touches it: one makes memory and
 * events, the other opens them. */
#ifndef PST_PROBE_PAIR_H
#define PST_PROBE_PAIR_H

#include "common/base.h"

/* make(message, shared) runs in one process, which stays until all is done; if it returns true,
 * open_all(message) runs in another, with what make left in message (bytes of it). The caller gets the last
 * answer. PST_E_IO, PST_E_TIMEOUT, PST_E_PEER: the processes could not be started, did not answer, or died.
 */
PST_MUST_USE pst_rc pst_probe_pair(bool (*make)(void *message, void *shared), void (*open_all)(void *message),
                                   void *message, size_t bytes, void *shared);

#endif
