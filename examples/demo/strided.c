/* An ordinary MPI-IO program without any reference to Weft: each rank moves pieces of one shared file at a stride.
 *
 *   mpiexec -n 4 ./strided FILE MODE [SIZE [PIECES [ORDER [VERSION]]]]
 *
 * Piece P of rank R begins at byte (P * ranks + R) * SIZE. Each rank moves PIECES pieces of SIZE bytes (a multiple of
 * 8), each with a separate call, one after another (ORDER forward) or in a fixed random order (ORDER random).
 *
 *   fill     each rank writes a contiguous part of the file in requests of 1 MiB
 *   write    writes and syncs the pieces
 *   read     reads the pieces and checks every byte
 *
 * The bytes depend on the offset and VERSION, so that `read` with another VERSION than that of the last `fill` or
 * `write` fails.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "strided: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Returns the eight bytes at an offset (SplitMix64). */
static uint64_t word_at(uint64_t offset, uint64_t version) {
    uint64_t x = (offset / 8 + 1) * 0x9e3779b97f4a7c15u + version * 0xd1342543de82ef95u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void fill(uint64_t *words, uint64_t offset, size_t len, uint64_t version) {
    for (size_t at = 0; at < len / 8; at++) words[at] = word_at(offset + at * 8, version);
}

static unsigned long differing(const uint64_t *words, uint64_t offset, size_t len, uint64_t version) {
    unsigned long wrong = 0;
    for (size_t at = 0; at < len / 8; at++) wrong += words[at] != word_at(offset + at * 8, version);
    return wrong;
}

/* Puts the pieces of a rank into a random order that is the same in every run. */
static void shuffle(long *order, long pieces, int rank) {
    for (long last = pieces - 1; last > 0; last--) {
        const long other = (long)(word_at((uint64_t)last * 8, 1000003u * (uint64_t)(rank + 1)) % (uint64_t)(last + 1));
        const long piece = order[last];
        order[last] = order[other];
        order[other] = piece;
    }
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const char *mode = argc > 2 ? argv[2] : "";
    const long size = argc > 3 ? atol(argv[3]) : 4096, pieces = argc > 4 ? atol(argv[4]) : 1024;
    const char *direction = argc > 5 ? argv[5] : "forward";
    const uint64_t version = argc > 6 ? strtoull(argv[6], NULL, 10) : 0;
    const int filling = !strcmp(mode, "fill"), writing = !strcmp(mode, "write"), random = !strcmp(direction, "random");
    if (!(filling || writing || !strcmp(mode, "read")) || !(random || !strcmp(direction, "forward")) || size < 8 || size % 8 ||
        pieces < 1) {
        if (rank == 0)
            fprintf(stderr, "usage: strided FILE fill|write|read [SIZE [PIECES [forward|random [VERSION]]]]\n"
                            "SIZE is a multiple of 8\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    const uint64_t part = (uint64_t)size * (uint64_t)pieces;
    const size_t longest = filling ? 1 << 20 : (size_t)size;
    const long calls = filling ? (long)((part + longest - 1) / longest) : pieces;
    uint64_t *words = malloc(longest);
    long *order = malloc((size_t)calls * sizeof *order);
    if (!words || !order) MPI_Abort(MPI_COMM_WORLD, 1);
    for (long call = 0; call < calls; call++) order[call] = call;
    if (random && !filling) shuffle(order, calls, rank);

    unsigned long wrong = 0, all_wrong = 0;
    MPI_File file;
    const int access = filling ? MPI_MODE_CREATE | MPI_MODE_WRONLY : writing ? MPI_MODE_WRONLY : MPI_MODE_RDONLY;
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime(), computing = 0;
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], access, MPI_INFO_NULL, &file), argv[1]);
    for (long call = 0; call < calls; call++) {
        uint64_t at = ((uint64_t)order[call] * (uint64_t)ranks + (uint64_t)rank) * (uint64_t)size;
        size_t len = (size_t)size;
        if (filling) {
            const uint64_t done = (uint64_t)call * longest;
            at = (uint64_t)rank * part + done;
            len = part - done < longest ? (size_t)(part - done) : longest;
        }
        double since = MPI_Wtime();
        if (filling || writing) fill(words, at, len, version);
        computing += MPI_Wtime() - since;
        MPI_Status status;
        int moved;
        check(filling || writing ? MPI_File_write_at(file, (MPI_Offset)at, words, (int)len, MPI_BYTE, &status)
                                 : MPI_File_read_at(file, (MPI_Offset)at, words, (int)len, MPI_BYTE, &status),
              mode);
        check(MPI_Get_count(&status, MPI_BYTE, &moved), mode);
        since = MPI_Wtime();
        if (!(filling || writing)) wrong += moved == (int)len ? differing(words, at, len, version) : 1;
        computing += MPI_Wtime() - since;
    }
    if (filling || writing) check(MPI_File_sync(file), "sync");
    check(MPI_File_close(&file), "close");
    double seconds = MPI_Wtime() - began - computing, slowest;

    MPI_Reduce(&wrong, &all_wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Bcast(&all_wrong, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
    MPI_Reduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("strided: %d ranks, %ld requests each of %ld B, %s: %s %.3f s: %s\n", ranks, calls, (long)longest,
               filling ? "contiguous" : direction, filling || writing ? "write+sync" : "read", slowest,
               all_wrong     ? "WRONG BYTES"
               : filling || writing ? "done"
                             : "every byte is right");
    free(order);
    free(words);
    MPI_Finalize();
    return all_wrong ? 1 : 0;
}
