/* MPI-IO on a file that delegates serve: argv[1] is a directory, argv[2] the expected number of delegates, argv[3] the
 * page length to request. Prints one line if all is right. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 701, PIECES = 60 };

static int rank, ranks;
static long wrong;

static unsigned char byte_at(long at) { return (unsigned char)(at * 31 + at / PIECE); }

static void expect(int is, const char *what) {
    if (!is) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        wrong++;
    }
}

static void check(const unsigned char *bytes, int owner, const char *what) {
    for (long piece = 0; piece < PIECES; piece++)
        for (long at = 0; at < PIECE; at++)
            if (bytes[piece * PIECE + at] != byte_at((piece * ranks + owner) * PIECE + at)) {
                expect(0, what);
                return;
            }
}

/* Writes and reads interleaved pieces. */
static void interleaved(MPI_File file, int collective, const char *what) {
    unsigned char *bytes = malloc(PIECE * PIECES);
    for (long piece = 0; piece < PIECES; piece++)
        for (long at = 0; at < PIECE; at++)
            bytes[piece * PIECE + at] = byte_at((piece * ranks + rank) * PIECE + at);
    MPI_Datatype pieces, view;
    MPI_Type_contiguous(PIECE, MPI_BYTE, &pieces);
    MPI_Type_create_resized(pieces, 0, (MPI_Aint)PIECE * ranks, &view);
    MPI_Type_commit(&view);
    MPI_File_set_view(file, (MPI_Offset)rank * PIECE, MPI_BYTE, view, "native", MPI_INFO_NULL);
    MPI_Status status;
    int done = collective ? MPI_File_write_all(file, bytes, PIECE * PIECES, MPI_BYTE, &status)
                          : MPI_File_write(file, bytes, PIECE * PIECES, MPI_BYTE, &status);
    expect(done == MPI_SUCCESS, what);
    int count;
    MPI_Get_count(&status, MPI_BYTE, &count);
    expect(count == PIECE * PIECES, what);
    /* A rank sees its own bytes at once. */
    memset(bytes, 0, PIECE * PIECES);
    expect(MPI_File_read_at(file, 0, bytes, PIECE * PIECES, MPI_BYTE, &status) == MPI_SUCCESS, what);
    check(bytes, rank, what);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    MPI_Offset size;
    MPI_File_get_size(file, &size);
    expect(size == (MPI_Offset)PIECE * PIECES * ranks, what);
    int other = (rank + 1) % ranks;
    MPI_File_set_view(file, (MPI_Offset)other * PIECE, MPI_BYTE, view, "native", MPI_INFO_NULL);
    memset(bytes, 0, PIECE * PIECES);
    done = collective ? MPI_File_read_all(file, bytes, PIECE * PIECES, MPI_BYTE, &status)
                      : MPI_File_read(file, bytes, PIECE * PIECES, MPI_BYTE, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    expect(done == MPI_SUCCESS && count == PIECE * PIECES, what);
    check(bytes, other, what);
    /* A read over the end of the file counts the bytes before it. */
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    memset(bytes, 0, PIECE * PIECES);
    MPI_File_read_at(file, size - 3 * PIECE, bytes, PIECE * 10, MPI_BYTE, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    expect(count == PIECE * 3, "count at the end of the file");
    int same = 1;
    for (long at = 0; at < 3 * PIECE; at++) same &= bytes[at] == byte_at(size - 3 * PIECE + at);
    expect(same, "bytes at the end of the file");
    MPI_Type_free(&view);
    MPI_Type_free(&pieces);
    free(bytes);
}

/* Memory with gaps on one side, a view without on the other. */
static void gaps_in_memory(MPI_File file) {
    enum { COUNT = 50 };
    int *memory = malloc(sizeof(int) * COUNT * 3);
    for (int at = 0; at < COUNT * 3; at++) memory[at] = at % 3 ? -1 : rank * 1000 + at / 3;
    MPI_Datatype every_third;
    MPI_Type_vector(COUNT, 1, 3, MPI_INT, &every_third);
    MPI_Type_commit(&every_third);
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_write_at_all(file, (MPI_Offset)rank * COUNT, memory, 1, every_third, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    int other = (rank + 1) % ranks;
    for (int at = 0; at < COUNT * 3; at++) memory[at] = -2;
    MPI_File_read_at_all(file, (MPI_Offset)other * COUNT, memory, 1, every_third, MPI_STATUS_IGNORE);
    int same = 1;
    for (int at = 0; at < COUNT * 3; at++) same &= memory[at] == (at % 3 ? -2 : other * 1000 + at / 3);
    expect(same, "memory with gaps");
    MPI_Type_free(&every_third);
    free(memory);
}

static void shared_pointer(MPI_File file) {
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    char line[32];
    snprintf(line, sizeof line, "rank %02d\n", rank);
    MPI_File_write_ordered(file, line, 8, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    int other = (rank + 1) % ranks;
    char wanted[32], got[9] = "";
    snprintf(wanted, sizeof wanted, "rank %02d\n", other);
    MPI_File_read_at(file, other * 8, got, 8, MPI_BYTE, MPI_STATUS_IGNORE);
    expect(memcmp(got, wanted, 8) == 0, "shared pointer");
}

/* Cuts the file when all ranks have read it. */
static void empty(MPI_File file) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_set_size(file, 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static long value(MPI_Info info, const char *key) {
    char text[64] = "-1";
    int has;
    MPI_Info_get(info, key, sizeof text - 1, text, &has);
    return has ? atol(text) : -1;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    char name[512];
    snprintf(name, sizeof name, "%s/mpi", argv[1]);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "weft_page_size", argv[3]);
    MPI_File file;
    if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file)) {
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Info_free(&info);
    interleaved(file, 1, "collective");
    MPI_File_get_info(file, &info);
    expect(value(info, "weft_delegates") == atol(argv[2]), "weft_delegates");
    expect(value(info, "weft_page_size") == atol(argv[3]), "weft_page_size");
    expect(value(info, "weft_delegate_memory") > 0, "weft_delegate_memory");
    MPI_Info_free(&info);
    empty(file);
    interleaved(file, 0, "independent");
    empty(file);
    MPI_File_set_atomicity(file, 1);
    interleaved(file, 1, "atomic");
    MPI_File_set_atomicity(file, 0);
    empty(file);
    gaps_in_memory(file);
    empty(file);
    shared_pointer(file);
    MPI_File_close(&file);
    long all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0) printf("all bytes are right\n");
    MPI_Finalize();
    return 0;
}
