/* An ordinary MPI-IO program with writes that are not aligned to stripes or pages, as in IO500's ior-hard.
 *
 *   mpiexec -n 4 ./unaligned FILE      each rank writes its records of one shared file, round-robin and independently
 *
 * The file equals that of mpiio_records, whose option --expected prints the expected bytes.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>

enum { RECORD = 47008, RECORDS = 192 };

static void check(int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    fprintf(stderr, "unaligned: %s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv) {
    static unsigned char record[RECORD];
    int rank, ranks;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file), "open");
    for (uint64_t i = 0; i < RECORDS; i++) {
        uint64_t at = (i * ranks + rank) * RECORD;
        for (uint64_t j = 0; j < RECORD; j++) {
            uint64_t x = (at + j) * 0x9e3779b97f4a7c15u;
            record[j] = (unsigned char)(x >> 56) ^ (unsigned char)(x >> 24);
        }
        check(MPI_File_write_at(file, (MPI_Offset)at, record, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "write");
    }
    check(MPI_File_sync(file), "sync");
    check(MPI_File_close(&file), "close");
    MPI_Finalize();
    return 0;
}
