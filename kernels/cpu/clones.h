/* clones.h: compiles one function for several instruction sets; the loader chooses. All clones give the
 * same bits, because nothing is reassociated or contracted. Owner: none. Threads: any. */
#ifndef PST_CLONES_H
#define PST_CLONES_H

/* Under sanitizers the choice would run too early, so they get plain code. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) &&      \
    !defined(__SANITIZE_ADDRESS__)
#define PST_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PST_CPU_CLONES
#endif

#define PST_CPU_INLINE static inline __attribute__((always_inline))

#endif
