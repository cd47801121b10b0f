/* fake_libnccl.c: a libnccl.so.2 for tests of the search for one. Its functions only have the names. */
#define FAKE(name)                                                                                           \
    int name(void);                                                                                          \
    int name(void)                                                                                           \
    {                                                                                                        \
        return 0;                                                                                            \
    }

FAKE(ncclGetUniqueId)
FAKE(ncclCommInitRank)
FAKE(ncclAllReduce)
FAKE(ncclCommGetAsyncError)
FAKE(ncclCommDestroy)
FAKE(ncclCommAbort)
FAKE(ncclGetErrorString)
