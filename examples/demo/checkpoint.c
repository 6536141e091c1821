/* An ordinary MPI program that writes a checkpoint, without any reference to Weft.
 *
 *   mpiexec -n 4 ./checkpoint DIR [MIB]     each rank writes its part of a field, MIB MiB, to DIR/rank.NUMBER and
 *                                           syncs it; when all have, each reads its part and checks every byte
 *
 * The field is a smooth function of the position with noise, rounded as by a solver that stops at a tolerance.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static void stop(const char *what, const char *name) {
    fprintf(stderr, "checkpoint: %s %s: %s\n", what, name, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(double *field, size_t count, uint64_t random) {
    for (size_t i = 0; i < count; i++) {
        double at = (double)i;
        random = random * 6364136223846793005u + 1442695040888963407u;
        double noise = 1e-3 * ((double)(random >> 32) / 4294967296.0 - 0.5);
        field[i] = round((300 + 20 * sin(at / 900) + 5 * sin(at / 70) + noise) * 1048576) / 1048576;
    }
}

int main(int argc, char **argv) {
    char name[4096];
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int mib = argc == 3 ? atoi(argv[2]) : 32;
    if (argc < 2 || argc > 3 || mib < 1) {
        if (rank == 0) fprintf(stderr, "usage: checkpoint DIR [MIB]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    snprintf(name, sizeof name, "%s/rank.%d", argv[1], rank);
    size_t len = (size_t)mib * MIB;
    char *field = malloc(len), *got = calloc(len, 1);
    if (!field || !got) stop("memory for", name);
    fill((double *)field, len / sizeof(double), (uint64_t)rank + 1);

    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0) stop("open", name);
    for (size_t at = 0; at < len; at += MIB)
        if (write(file, field + at, MIB) != (ssize_t)MIB) stop("write", name);
    if (fsync(file) != 0) stop("fsync", name);
    MPI_Barrier(MPI_COMM_WORLD);
    double wrote = MPI_Wtime() - began;

    began = MPI_Wtime();
    for (size_t at = 0; at < len; at += MIB)
        if (pread(file, got + at, MIB, (off_t)at) != (ssize_t)MIB) stop("read", name);
    MPI_Barrier(MPI_COMM_WORLD);
    double read = MPI_Wtime() - began;
    if (close(file) != 0) stop("close", name);

    int wrong = memcmp(field, got, len) != 0, all_wrong;
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        printf("checkpoint: %d ranks, %d MiB each: write+sync %.4f s, read %.4f s: %s\n", ranks, mib, wrote, read,
               all_wrong ? "WRONG BYTES" : "every byte is right");
    free(field);
    free(got);
    MPI_Finalize();
    return all_wrong;
}
