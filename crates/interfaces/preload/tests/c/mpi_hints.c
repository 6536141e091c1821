/* Layout hints of MPI-IO: applied at creation, and reported with the values of the actual layout. */
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

static void expect(MPI_File file, const char *key, const char *want) {
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int has = 0;
    CHECK(MPI_File_get_info(file, &info) == MPI_SUCCESS);
    MPI_Info_get(info, (char *)key, MPI_MAX_INFO_VAL, value, &has);
    if (!has || strcmp(value, want) != 0) fprintf(stderr, "%s: \"%s\", not \"%s\"\n", key, value, want);
    CHECK(has && strcmp(value, want) == 0);
    MPI_Info_free(&info);
}

int main(int argc, char **argv) {
    MPI_File file;
    MPI_Info info;
    int rank;
    char path[4096], foreign[] = "/tmp/weft-mpi-hints-foreign";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s/hinted", argv[1]);
    MPI_Info_create(&info);
    MPI_Info_set(info, "striping_unit", "131072");
    MPI_Info_set(info, "striping_factor", "2");
    MPI_Info_set(info, "weft_class", "ssd");
    MPI_Info_set(info, "weft_compress", "zstd:3/128KiB");
    MPI_Info_set(info, "of_no_meaning", "whatever");
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file) == MPI_SUCCESS);
    expect(file, "striping_unit", "131072");
    expect(file, "striping_factor", "2");
    expect(file, "weft_class", "ssd");
    expect(file, "weft_compress", "zstd:3/128KiB");
    int data = rank + 1, back = 0;
    CHECK(MPI_File_write_at_all(file, rank * sizeof data, &data, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    CHECK(MPI_File_read_at_all(file, rank * sizeof data, &back, 1, MPI_INT, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(back == data && MPI_File_close(&file) == MPI_SUCCESS);
    /* Reopened without hints: the values are those of the file. */
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    expect(file, "striping_unit", "131072");
    expect(file, "striping_factor", "2");
    expect(file, "weft_compress", "zstd:3/128KiB");
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    /* Exact strips, and ROMIO's prefix of the file system. */
    MPI_Info_free(&info);
    MPI_Info_create(&info);
    MPI_Info_set(info, "weft_strips", "1:65536,3:4096");
    snprintf(path, sizeof path, "%s/strips", argv[1]);
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_WRONLY, info, &file) == MPI_SUCCESS);
    expect(file, "weft_strips", "1:65536,3:4096");
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    /* A foreign file is not affected. */
    CHECK(MPI_File_open(MPI_COMM_WORLD, foreign, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                        MPI_INFO_NULL, &file) == MPI_SUCCESS);
    MPI_Info used;
    CHECK(MPI_File_get_info(file, &used) == MPI_SUCCESS);
    char value[100];
    int has = 1;
    MPI_Info_get(used, "weft_strips", 99, value, &has);
    CHECK(!has);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    MPI_Finalize();
    if (rank == 0) puts("hints kept");
    return 0;
}
