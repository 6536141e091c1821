/* Helpers of the programs in this directory. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program;

static inline void check(int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "%s: %s: %s\n", program, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline void *room(size_t bytes) {
    void *data = malloc(bytes);
    if (!data) {
        fprintf(stderr, "%s: no memory for %zu bytes\n", program, bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return data;
}

/* Returns the expected 8-byte word number `index` of a file or a variable. */
static inline uint64_t word_at(uint64_t index) {
    const uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u;
    return x ^ (x >> 29);
}

/* Returns the expected value of element `index` of a variable; a float holds it exactly. */
static inline double value_at(uint64_t variable, uint64_t index) {
    return (double)((index * 2654435761u + variable * 40503u) % 8388593u);
}

/* Prints the result of a run on rank 0, and returns the exit code. A time below zero was not measured. Each of `times` is
 * the duration in seconds on this rank of writing and of reading, from open to close. */
static inline int report(const char *what, double bytes, const double *times, uint64_t wrong, int checked) {
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double slowest[2];
    uint64_t all_wrong = 0;
    MPI_Allreduce(times, slowest, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        const char *const names[2] = {"write", "read"};
        printf("%s: %d ranks, %s, %.3f MiB:", program, ranks, what, bytes / 1048576);
        for (int i = 0; i < 2; i++)
            if (slowest[i] > 0) printf(" %s %.4f s %.1f MiB/s,", names[i], slowest[i], bytes / 1048576 / slowest[i]);
        printf(" %s\n", !checked ? "not checked" : all_wrong ? "WRONG BYTES" : "every byte is right");
    }
    return all_wrong != 0;
}
