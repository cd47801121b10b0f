/* clones.h: one source, several instruction sets, chosen when the library is loaded. All clones give the
 * same bits: nothing is reassociated or contracted, only done wider. */
#ifndef PST_CLONES_H
#define PST_CLONES_H

/* Sanitizers run before the resolvers of cloned functions may; plain code serves there. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&      \
    !defined(__SANITIZE_ADDRESS__)
#define PST_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PST_CPU_CLONES
#endif

#define PST_CPU_INLINE static inline __attribute__((always_inline))

#endif
