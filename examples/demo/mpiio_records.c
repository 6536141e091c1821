/* An ordinary MPI-IO program without any reference to Weft.
 *
 *   mpiexec -n 4 ./mpiio_records FILE      all ranks write one shared file, read it back and check every byte
 *   ./mpiio_records --expected RANKS       prints the expected bytes of FILE
 *
 * The file is RECORDS records per rank of 47,008 bytes each (the transfer size of IO500's ior-hard), distributed
 * round-robin, so that no record begins or ends at a stripe or page boundary. The first half is written collectively
 * through a file view, the second half independently at explicit offsets.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD = 47008, RECORDS = 192, HALF = RECORDS / 2 };

/* Returns the expected byte at offset `at` of the file. */
static void expect(unsigned char *out, uint64_t at, size_t len) {
    for (size_t i = 0; i < len; i++) {
        uint64_t x = (at + i) * 0x9e3779b97f4a7c15u;
        out[i] = (unsigned char)(x >> 56) ^ (unsigned char)(x >> 24);
    }
}

static void check(int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "%s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--expected") == 0) {
        static unsigned char record[RECORD];
        uint64_t records = (uint64_t)RECORDS * strtoull(argv[2], NULL, 10);
        for (uint64_t i = 0; i < records; i++) {
            expect(record, i * RECORD, RECORD);
            if (fwrite(record, RECORD, 1, stdout) != 1) return 1;
        }
        return fflush(stdout) == 0 ? 0 : 1;
    }
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2) {
        if (rank == 0) fprintf(stderr, "usage: mpiio_records FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }

    MPI_File file;
    double began = MPI_Wtime();
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");

    /* First half: a view with only the records of this rank, and one collective write. */
    MPI_Datatype record, mine;
    check(MPI_Type_contiguous(RECORD, MPI_BYTE, &record), "type");
    check(MPI_Type_create_resized(record, 0, (MPI_Aint)ranks * RECORD, &mine), "type");
    check(MPI_Type_commit(&mine), "type");
    unsigned char *data = malloc((size_t)HALF * RECORD);
    unsigned char *wanted = malloc(RECORD);
    if (!data || !wanted) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < HALF; i++)
        expect(data + (size_t)i * RECORD, ((uint64_t)i * ranks + rank) * RECORD, RECORD);
    MPI_Status status;
    check(MPI_File_set_view(file, (MPI_Offset)rank * RECORD, MPI_BYTE, mine, "native", MPI_INFO_NULL), "view");
    check(MPI_File_write_all(file, data, HALF * RECORD, MPI_BYTE, &status), "collective write");

    /* Second half: independent writes. */
    check(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), "view");
    for (int i = HALF; i < RECORDS; i++) {
        uint64_t at = ((uint64_t)i * ranks + rank) * RECORD;
        expect(data, at, RECORD);
        check(MPI_File_write_at(file, (MPI_Offset)at, data, RECORD, MPI_BYTE, &status), "write");
    }
    check(MPI_File_sync(file), "sync");
    MPI_Barrier(MPI_COMM_WORLD);
    check(MPI_File_sync(file), "sync");
    double wrote = MPI_Wtime() - began;

    /* Each rank reads the records of its neighbor. */
    began = MPI_Wtime();
    uint64_t wrong = 0;
    int neighbor = (rank + 1) % ranks;
    for (int i = 0; i < RECORDS; i++) {
        uint64_t at = ((uint64_t)i * ranks + neighbor) * RECORD;
        int got = 0;
        check(MPI_File_read_at(file, (MPI_Offset)at, data, RECORD, MPI_BYTE, &status), "read");
        MPI_Get_count(&status, MPI_BYTE, &got);
        expect(wanted, at, RECORD);
        if (got != RECORD || memcmp(data, wanted, RECORD) != 0) wrong++;
    }
    double read = MPI_Wtime() - began;
    MPI_Offset size = 0;
    check(MPI_File_get_size(file, &size), "size");
    check(MPI_File_close(&file), "close");
    if (size != (MPI_Offset)RECORDS * ranks * RECORD) wrong++;

    uint64_t all_wrong = 0;
    double times[2] = {wrote, read}, slowest[2];
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(times, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        double mib = (double)size / 1048576;
        printf("mpiio_records: %d ranks, %.1f MiB in records of %d bytes: write+sync %.0f MiB/s, read %.0f MiB/s: %s\n",
               ranks, mib, RECORD, mib / slowest[0], mib / slowest[1],
               all_wrong ? "WRONG BYTES" : "every byte is right");
    }
    free(data);
    free(wanted);
    MPI_Type_free(&mine);
    MPI_Type_free(&record);
    MPI_Finalize();
    return all_wrong ? 1 : 0;
}
