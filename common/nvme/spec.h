/* spec.h: the structures, registers and numbers of the NVMe base specification (2.0) that the driver, the
 * GPU's kernels and the emulated controllers share. They are little endian, as are all machines that this
 * runs on. Identify and log pages come from libnvme.
 * Owner: none; plain values. Threads: any. Host and device. */
#ifndef PST_SPEC_H
#define PST_SPEC_H

#include "common/base.h"

/* Submission queue entry: section 3.3.3.1. */
struct pst_nvme_sqe {
    uint8_t opcode, flags;
    uint16_t cid;
    uint32_t nsid;
    uint32_t cdw2, cdw3;
    uint64_t mptr;
    uint64_t prp1, prp2;
    uint32_t cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};
static_assert(sizeof(struct pst_nvme_sqe) == 64, "section 3.3.3.1");

/* Completion queue entry: section 3.3.3.2. */
struct pst_nvme_cqe {
    uint32_t dw0, dw1;
    uint16_t sq_head, sq_id;
    uint16_t cid;
    uint16_t status; /* bit 0: phase; the other bits: pst_nvme_status */
};
static_assert(sizeof(struct pst_nvme_cqe) == 16, "section 3.3.3.2");

/* Controller registers: byte offsets, section 3.1.3. */
enum pst_nvme_register {
    PST_NVME_CAP = 0x00, /* 64 bits */
    PST_NVME_VS = 0x08,
    PST_NVME_INTMS = 0x0c,
    PST_NVME_CC = 0x14,
    PST_NVME_CSTS = 0x1c,
    PST_NVME_AQA = 0x24,
    PST_NVME_ASQ = 0x28,         /* 64 bits */
    PST_NVME_ACQ = 0x30,         /* 64 bits */
    PST_NVME_DOORBELLS = 0x1000, /* SQ y at 2y strides, CQ y at 2y + 1; a stride is 4 << CAP.DSTRD bytes */
};

#define PST_NVME_CAP_MQES(cap) ((uint32_t)((cap)&0xffff) + 1) /* largest number of entries of an IO queue */
#define PST_NVME_CAP_TO_MS(cap) ((uint32_t)((cap) >> 24 & 0xff) * 500)
#define PST_NVME_CAP_STRIDE(cap) (4u << ((cap) >> 32 & 0xf))
#define PST_NVME_CAP_NVM(cap) ((cap) >> 37 & 1)
#define PST_NVME_CAP_PAGE_MIN(cap) (4096ull << ((cap) >> 48 & 0xf))
#define PST_NVME_CAP_PAGE_MAX(cap) (4096ull << ((cap) >> 52 & 0xf))

#define PST_NVME_CC_EN 1u
#define PST_NVME_CC_MPS(page_shift) ((uint32_t)((page_shift)-12) << 7)
#define PST_NVME_CC_SHN_NORMAL (1u << 14)
#define PST_NVME_CC_SHN_ABRUPT (2u << 14)
#define PST_NVME_CC_SHN_MASK (3u << 14)
#define PST_NVME_CC_ENTRIES (6u << 16 | 4u << 20) /* entries of 64 and 16 bytes */

#define PST_NVME_CSTS_RDY 1u
#define PST_NVME_CSTS_CFS 2u
#define PST_NVME_CSTS_SHST_MASK (3u << 2)
#define PST_NVME_CSTS_SHST_DONE (2u << 2)

enum pst_nvme_admin_opcode {
    PST_NVME_DELETE_SQ = 0x00,
    PST_NVME_CREATE_SQ = 0x01,
    PST_NVME_DELETE_CQ = 0x04,
    PST_NVME_CREATE_CQ = 0x05,
    PST_NVME_IDENTIFY = 0x06,
    PST_NVME_ABORT = 0x08,
    PST_NVME_SET_FEATURES = 0x09,
};

enum pst_nvme_opcode { PST_NVME_FLUSH = 0x00, PST_NVME_WRITE = 0x01, PST_NVME_READ = 0x02 };

#define PST_NVME_FEATURE_QUEUES 0x07
#define PST_NVME_CNS_NAMESPACE 0x00
#define PST_NVME_CNS_CONTROLLER 0x01
#define PST_NVME_CNS_NAMESPACES 0x02

/* The result of a command: status code type << 8 | status code (section 3.3.3.2.1). */
enum pst_nvme_status {
    PST_NVME_OK = 0x000,
    PST_NVME_BAD_OPCODE = 0x001,
    PST_NVME_BAD_FIELD = 0x002,
    PST_NVME_ID_CONFLICT = 0x003,
    PST_NVME_DATA_TRANSFER = 0x004,
    PST_NVME_INTERNAL = 0x006,
    PST_NVME_ABORTED = 0x007,
    PST_NVME_SQ_DELETED = 0x008,
    PST_NVME_BAD_NAMESPACE = 0x00b,
    PST_NVME_BAD_PRP_OFFSET = 0x013,
    PST_NVME_NS_READ_ONLY = 0x020,
    PST_NVME_LBA_RANGE = 0x080,
    PST_NVME_NOT_READY = 0x082,
    PST_NVME_BAD_CQ = 0x100,
    PST_NVME_BAD_QUEUE_ID = 0x101,
    PST_NVME_BAD_QUEUE_SIZE = 0x102,
    PST_NVME_BAD_QUEUE_DELETION = 0x10c,
    PST_NVME_WRITE_FAULT = 0x280,
    PST_NVME_READ_ERROR = 0x281,
};
#define PST_NVME_STATUS(cqe_status) ((uint16_t)((cqe_status) >> 1 & 0x7ff))
#define PST_NVME_DO_NOT_RETRY(cqe_status) ((cqe_status) >> 15 & 1)

#define PST_NVME_LBAS_MAX 65536u /* of one command: cdw12 has 16 bits, which count from 0 */

#endif
