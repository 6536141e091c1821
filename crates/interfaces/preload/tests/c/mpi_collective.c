/* Collective writes and reads of interleaved pieces, and the hints that are in force: argv[1] is a directory of Weft, argv[2] the expected hint of two-phase I/O, argv[3] the value of the key
 * weft_collective or "-", argv[4] a value of romio_cb_write that the program itself gives, or "-". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 4701, PIECES = 40 };

static unsigned char byte_at(long at) { return (unsigned char)(at * 31 + at / 4701); }

/* Writes at the shared pointer in the order of ranks, many times in a row. Returns the number of wrong integers. */
static long ordered(const char *dir, int rank, int ranks) {
    enum { TIMES = 50 };
    char name[512];
    snprintf(name, sizeof name, "%s/ordered", dir);
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) MPI_Abort(MPI_COMM_WORLD, 4);
    for (int time = 0; time < TIMES; time++) {
        int mine = time * ranks + rank;
        MPI_File_write_ordered(file, &mine, 4, MPI_BYTE, MPI_STATUS_IGNORE);
    }
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    long wrong = 0;
    for (int time = 0; time < TIMES; time++) {
        int mine = -1;
        MPI_File_read_ordered(file, &mine, 4, MPI_BYTE, MPI_STATUS_IGNORE);
        wrong += mine != time * ranks + rank;
    }
    MPI_File_close(&file);
    return wrong;
}

/* Writes through a view whose type begins before its lower bound. Returns the number of wrong integers. */
static long early(const char *dir, int rank) {
    char name[512];
    snprintf(name, sizeof name, "%s/early.%d", dir, rank);
    MPI_Datatype view;
    MPI_Type_create_resized(MPI_INT, sizeof(int), 3 * sizeof(int), &view);
    MPI_Type_commit(&view);
    MPI_File file;
    if (MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file)) MPI_Abort(MPI_COMM_WORLD, 5);
    int four[4] = {55, 55, 55, 55}, two[2] = {10, 20}, back[2] = {0, 0};
    MPI_File_write(file, four, 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_set_view(file, 0, MPI_INT, view, "native", MPI_INFO_NULL);
    MPI_File_write(file, two, 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_seek(file, 0, MPI_SEEK_SET);
    MPI_File_read(file, back, 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_read(file, four, 4, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&view);
    return (back[0] != 10) + (back[1] != 20) + (four[0] != 10) + (four[1] != 55) + (four[2] != 55) + (four[3] != 20);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5) MPI_Abort(MPI_COMM_WORLD, 2);
    char name[512];
    snprintf(name, sizeof name, "%s/collective", argv[1]);
    MPI_Info info = MPI_INFO_NULL;
    if (strcmp(argv[3], "-") || strcmp(argv[4], "-")) {
        MPI_Info_create(&info);
        if (strcmp(argv[3], "-")) MPI_Info_set(info, "weft_collective", argv[3]);
        if (strcmp(argv[4], "-")) MPI_Info_set(info, "romio_cb_write", argv[4]);
    }
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file)) {
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (info != MPI_INFO_NULL) {
        int keys, had = strcmp(argv[3], "-") && strcmp(argv[4], "-") ? 2 : 1;
        MPI_Info_get_nkeys(info, &keys);
        if (keys != had) printf("the program's own info has %d keys\n", keys);
        MPI_Info_free(&info);
    }
    MPI_Datatype pieces, view;
    MPI_Type_contiguous(PIECE, MPI_BYTE, &pieces);
    MPI_Type_create_resized(pieces, 0, (MPI_Aint)PIECE * ranks, &view);
    MPI_Type_commit(&view);
    MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_BYTE, view, "native", MPI_INFO_NULL);
    unsigned char *bytes = malloc(PIECE * PIECES);
    for (long piece = 0; piece < PIECES; piece++)
        for (long at = 0; at < PIECE; at++)
            bytes[piece * PIECE + at] = byte_at((piece * ranks + rank) * PIECE + at);
    MPI_File_write_all(file, bytes, PIECE * PIECES, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    /* Each rank reads the pieces of the next one. */
    int other = (rank + 1) % ranks;
    MPI_File_set_view(file, (MPI_Offset)other * PIECE, MPI_BYTE, view, "native", MPI_INFO_NULL);
    memset(bytes, 0, PIECE * PIECES);
    MPI_File_read_all(file, bytes, PIECE * PIECES, MPI_BYTE, MPI_STATUS_IGNORE);
    long wrong = 0;
    for (long piece = 0; piece < PIECES; piece++)
        for (long at = 0; at < PIECE; at++)
            wrong += bytes[piece * PIECE + at] != byte_at((piece * ranks + other) * PIECE + at);
    MPI_Info used;
    MPI_File_get_info(file, &used);
    char hint[64] = "";
    int has = 0;
    MPI_Info_get(used, "romio_cb_write", sizeof hint - 1, hint, &has);
    MPI_Info_free(&used);
    MPI_File_close(&file);
    if (has && strcmp(hint, argv[2])) printf("rank %d: romio_cb_write is %s, expected %s\n", rank, hint, argv[2]);
    wrong += ordered(argv[1], rank, ranks) + early(argv[1], rank);
    long all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld bytes are wrong\n", all);
    free(bytes);
    MPI_Type_free(&view);
    MPI_Type_free(&pieces);
    MPI_Finalize();
    return 0;
}
