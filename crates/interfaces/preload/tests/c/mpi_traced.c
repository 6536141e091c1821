/* Makes each kind of MPI-IO access once, after writing the expected trace: one file per rank with one line per access,
 * in order. A line contains operation, whether collective, last component of the file name, offset, length, and minimum
 * duration in milliseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            _exit(1); \
        } \
    } while (0)
#define OK(call) CHECK((call) == MPI_SUCCESS)

#if MPI_VERSION < 4
/* An MPI without large counts: with the hooks, such calls use the routines that it has. */
typedef MPI_Count Large;
__attribute__((weak)) int MPI_File_write_at_c(MPI_File, MPI_Offset, const void *, Large, MPI_Datatype, MPI_Status *);
__attribute__((weak)) int MPI_File_read_all_c(MPI_File, void *, Large, MPI_Datatype, MPI_Status *);
__attribute__((weak)) int MPI_File_iwrite_c(MPI_File, const void *, Large, MPI_Datatype, MPI_Request *);
#endif

static FILE *said;
static int rank, size;

static void expect(const char *op, int collective, const char *file, long long offset, long long len, int ms) {
    fprintf(said, "%s %s %s %lld %lld %d\n", op, collective ? "yes" : "no", file, offset, len, ms);
}

static void pointers(MPI_File file) {
    int numbers[100] = {0};
    MPI_Status status;
    OK(MPI_File_seek(file, rank * 4096, MPI_SEEK_SET));
    expect("write", 0, "shared", rank * 4096, 400, 0);
    OK(MPI_File_write(file, numbers, 100, MPI_INT, MPI_STATUS_IGNORE));
    expect("write", 1, "shared", rank * 4096 + 400, 40, 0);
    OK(MPI_File_write_all(file, numbers, 10, MPI_INT, &status));
    OK(MPI_File_seek(file, rank * 4096 + 4, MPI_SEEK_SET));
    expect("read", 0, "shared", rank * 4096 + 4, 8, 0);
    OK(MPI_File_read(file, numbers, 1, MPI_DOUBLE, MPI_STATUS_IGNORE));
    expect("read", 1, "shared", rank * 4096 + 12, 20, 0);
    OK(MPI_File_read_all(file, numbers, 5, MPI_INT, &status));
}

static void offsets(MPI_File file) {
    char bytes[1000] = {0};
    expect("write", 0, "shared", 100000 + rank * 1000, 1000, 0);
    OK(MPI_File_write_at(file, 100000 + rank * 1000, bytes, 1000, MPI_BYTE, MPI_STATUS_IGNORE));
    expect("write", 1, "shared", 200000 + rank * 500, 500, 0);
    OK(MPI_File_write_at_all(file, 200000 + rank * 500, bytes, 500, MPI_BYTE, MPI_STATUS_IGNORE));
    expect("read", 0, "shared", 100000 + rank * 1000, 10, 0);
    OK(MPI_File_read_at(file, 100000 + rank * 1000, bytes, 10, MPI_BYTE, MPI_STATUS_IGNORE));
    expect("read", 1, "shared", 200000 + rank * 500, 7, 0);
    OK(MPI_File_read_at_all(file, 200000 + rank * 500, bytes, 7, MPI_BYTE, MPI_STATUS_IGNORE));
    /* A collective call in which one rank has no data. */
    expect("write", 1, "shared", 200000, rank == 0 ? 5 : 0, 0);
    OK(MPI_File_write_at_all(file, 200000, bytes, rank == 0 ? 5 : 0, MPI_BYTE, MPI_STATUS_IGNORE));
}

static void views(MPI_File file) {
    int numbers[16] = {0};
    MPI_Datatype pairs, spread;
    /* Pairs of ints, alternating between ranks, from byte 64 on. */
    OK(MPI_Type_contiguous(2, MPI_INT, &pairs));
    OK(MPI_Type_create_resized(pairs, 0, size * 8, &spread));
    OK(MPI_Type_commit(&spread));
    OK(MPI_File_set_view(file, 64 + rank * 8, MPI_INT, spread, "native", MPI_INFO_NULL));
    expect("write", 1, "shared", 64 + rank * 8, 16, 0);
    OK(MPI_File_write_all(file, numbers, 4, MPI_INT, MPI_STATUS_IGNORE));
    expect("write", 1, "shared", 64 + rank * 8 + 2 * size * 8, 16, 0);
    OK(MPI_File_write_all(file, numbers, 4, MPI_INT, MPI_STATUS_IGNORE));
    expect("write", 0, "shared", 64 + rank * 8 + size * 8 + 4, 4, 0);
    OK(MPI_File_write_at(file, 3, numbers, 1, MPI_INT, MPI_STATUS_IGNORE));
    expect("read", 1, "shared", 64 + rank * 8 + 3 * size * 8, 8, 0);
    OK(MPI_File_read_at_all(file, 6, numbers, 2, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    MPI_Type_free(&spread);
    MPI_Type_free(&pairs);
}

static void asynchronous(MPI_File file) {
    char bytes[64] = {0};
    MPI_Request request;
    expect("write", 0, "shared", 300000 + rank * 64, 64, 0);
    OK(MPI_File_iwrite_at(file, 300000 + rank * 64, bytes, 64, MPI_BYTE, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_File_seek(file, 310000 + rank * 64, MPI_SEEK_SET));
    expect("write", 0, "shared", 310000 + rank * 64, 32, 0);
    OK(MPI_File_iwrite(file, bytes, 32, MPI_BYTE, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    expect("write", 1, "shared", 310032 + rank * 64, 32, 0);
    OK(MPI_File_iwrite_all(file, bytes, 32, MPI_BYTE, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    expect("read", 1, "shared", 300000 + rank * 64, 16, 0);
    OK(MPI_File_iread_at_all(file, 300000 + rank * 64, bytes, 16, MPI_BYTE, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void split(MPI_File file) {
    char bytes[64] = {0};
    expect("write", 1, "shared", 400000 + rank * 64, 64, 20);
    OK(MPI_File_write_at_all_begin(file, 400000 + rank * 64, bytes, 64, MPI_BYTE));
    usleep(20000);
    OK(MPI_File_write_at_all_end(file, bytes, MPI_STATUS_IGNORE));
    OK(MPI_File_seek(file, 400000 + rank * 64, MPI_SEEK_SET));
    expect("read", 1, "shared", 400000 + rank * 64, 32, 20);
    OK(MPI_File_read_all_begin(file, bytes, 32, MPI_BYTE));
    usleep(20000);
    OK(MPI_File_read_all_end(file, bytes, MPI_STATUS_IGNORE));
}

static void large(MPI_File file) {
    char bytes[64] = {0};
    MPI_Request request;
#if MPI_VERSION < 4
    if (!MPI_File_write_at_c || !MPI_File_read_all_c || !MPI_File_iwrite_c) return; /* Without the hooks. */
#endif
    expect("write", 0, "shared", 500000 + rank * 64, 64, 0);
    OK(MPI_File_write_at_c(file, 500000 + rank * 64, bytes, 64, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_seek(file, 500000 + rank * 64, MPI_SEEK_SET));
    expect("read", 1, "shared", 500000 + rank * 64, 48, 0);
    OK(MPI_File_read_all_c(file, bytes, 12, MPI_INT, MPI_STATUS_IGNORE));
    expect("write", 0, "shared", 500048 + rank * 64, 16, 0);
    OK(MPI_File_iwrite_c(file, bytes, 16, MPI_BYTE, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* At the end of the file, a read returns less than requested. */
static void end_of_file(MPI_File file) {
    char bytes[100];
    MPI_Status status;
    int count;
    OK(MPI_File_set_size(file, 600000));
    expect("truncate", 1, "shared", 600000, 0, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    expect("read", 0, "shared", 599990, 10, 0);
    OK(MPI_File_read_at(file, 599990, bytes, 100, MPI_BYTE, MPI_STATUS_IGNORE));
    expect("read", 0, "shared", 599984, 16, 0);
    OK(MPI_File_read_at(file, 599984, bytes, 10, MPI_INT, &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 4);
    expect("read", 0, "shared", 600000, 0, 0);
    OK(MPI_File_read_at(file, 600000, bytes, 10, MPI_INT, MPI_STATUS_IGNORE));
}

/* The shared pointer, used by the ranks in order and by one rank alone. */
static void shared_pointer(MPI_File file, const char *dir) {
    char bytes[64] = {0}, path[4096], name[32];
    MPI_File own;
    for (int turn = 0; turn < size; turn++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (turn != rank) continue;
        expect("write", 0, "shared", rank * 30, 30, 0);
        OK(MPI_File_write_shared(file, bytes, 30, MPI_BYTE, MPI_STATUS_IGNORE));
    }
    snprintf(name, sizeof name, "own.%d", rank);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    expect("create", 1, name, 0, 0, 0);
    OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &own));
    expect("write", 1, name, 0, 64, 0);
    OK(MPI_File_write_ordered(own, bytes, 64, MPI_BYTE, MPI_STATUS_IGNORE));
    expect("write", 1, name, 64, 12, 0);
    OK(MPI_File_write_ordered_begin(own, bytes, 12, MPI_BYTE));
    OK(MPI_File_write_ordered_end(own, bytes, MPI_STATUS_IGNORE));
    expect("close", 1, name, 0, 0, 0);
    OK(MPI_File_close(&own));
    expect("unlink", 0, name, 0, 0, 0);
    OK(MPI_File_delete(path, MPI_INFO_NULL));
}

/* Pointers must not be queried here: this handler aborts a process that does. */
static void sequential(const char *path) {
    char bytes[30];
    MPI_File file;
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file));
    expect("open", 1, "shared", 0, 0, 0);
    OK(MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL));
    OK(MPI_File_read_shared(file, bytes, 30, MPI_BYTE, MPI_STATUS_IGNORE));
    expect("close", 1, "shared", 0, 0, 0);
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv) {
    MPI_File file;
    char path[4096];
    CHECK(argc == 3);
    OK(MPI_Init(&argc, &argv));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    snprintf(path, sizeof path, "%s/%d", argv[2], rank);
    CHECK((said = fopen(path, "w")) != NULL);
    snprintf(path, sizeof path, "%s/shared", argv[1]);
    expect("create", 1, "shared", 0, 0, 0);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    pointers(file);
    offsets(file);
    views(file);
    asynchronous(file);
    split(file);
    large(file);
    end_of_file(file);
    shared_pointer(file, argv[1]);
    expect("sync", 1, "shared", 0, 0, 0);
    OK(MPI_File_sync(file));
    expect("close", 1, "shared", 0, 0, 0);
    OK(MPI_File_close(&file));
    sequential(path);
    expect("open", 1, "shared", 0, 0, 0);
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    expect("close", 1, "shared", 0, 0, 0);
    OK(MPI_File_close(&file));
    CHECK(fclose(said) == 0);
    MPI_Finalize();
    return 0;
}
