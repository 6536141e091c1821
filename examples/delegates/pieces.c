/* An ordinary MPI program without any reference to Weft: one collective write of many small pieces.
 *
 *   mpiexec -n 2 ./pieces FILE [COUNT] [BYTES] [MODE]
 *
 * Each rank writes COUNT pieces (100,000) of BYTES bytes (64) in one call. With MODE `view` (the default) the pieces of
 * all ranks alternate, and a view describes those of a rank. With MODE `contiguous` each rank writes the same number of
 * bytes as one piece: the difference is the cost of pieces. Times reach from the call to the end of the sync.
 */
#include "common.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    program = "pieces";
    if (argc < 2) {
        if (rank == 0) fprintf(stderr, "usage: pieces FILE [COUNT] [BYTES] [view|contiguous]\n");
        MPI_Finalize();
        return 2;
    }
    const int count = argc > 2 ? atoi(argv[2]) : 100000, bytes = argc > 3 ? atoi(argv[3]) : 64;
    const int is_view = argc <= 4 || strcmp(argv[4], "view") == 0;
    const MPI_Offset len = (MPI_Offset)count * bytes;
    char *data = malloc(len);
    if (data == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    memset(data, 'a' + rank % 26, len);

    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Datatype pieces;
    MPI_Type_vector(count, bytes, ranks * bytes, MPI_BYTE, &pieces);
    MPI_Type_commit(&pieces);
    if (is_view)
        MPI_File_set_view(file, (MPI_Offset)rank * bytes, MPI_BYTE, pieces, "native", MPI_INFO_NULL);
    else
        MPI_File_set_view(file, rank * len, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_File_write_all(file, data, (int)len, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    const double took = MPI_Wtime() - start;

    /* Every byte is read back by another view. */
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_read_at_all(file, rank * len, data, (int)len, MPI_BYTE, MPI_STATUS_IGNORE);
    long wrong = 0;
    for (MPI_Offset i = 0; i < len; i++) {
        const int writer = is_view ? (int)((rank * len + i) / bytes % ranks) : rank;
        wrong += data[i] != 'a' + writer % 26;
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && wrong > 0) printf("WRONG bytes: %ld\n", wrong);
    if (rank == 0) printf("%.3f MiB in pieces of %d bytes, write %.4f s\n", (double)len * ranks / (1 << 20), bytes, took);
    MPI_Type_free(&pieces);
    MPI_File_close(&file);
    free(data);
    MPI_Finalize();
    return wrong > 0;
}
