/* .npy headers: the first 8 bytes say how long the file claims to be, the rest is its beginning. */
#include <string.h>

#include "common/store/dataset/npy.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint64_t file_bytes;
    struct pst_npy npy;
    if (bytes < sizeof file_bytes)
        return 0;
    memcpy(&file_bytes, data, sizeof file_bytes);
    data += sizeof file_bytes;
    bytes -= sizeof file_bytes;
    if (file_bytes < bytes || file_bytes > INT64_MAX) /* what fstat would never say */
        file_bytes = bytes;
    if (pst_npy_parse(data, bytes, file_bytes, &npy) == PST_OK)
        fuzz_check(npy.data_at + npy.data_bytes == file_bytes && npy.rank >= 1 && npy.rank <= 2 &&
                   npy.shape[0] >= 0 && npy.shape[1] >= 0);
    return 0;
}
