/* An ordinary MPI-IO program without any reference to Weft: the output of NAS BT as in the BTIO benchmark.
 *
 *   mpiexec -n 4 ./btio FILE [STEPS [SIDE [simple]]]       on 1, 4, 9, 16, ... ranks
 *
 * A cube of SIDE^3 points with five doubles each (SIDE 64 is class A, 102 class B) is distributed by diagonal
 * multipartitioning: on q x q ranks, each rank has q cells on a diagonal. Every step appends the cube to one shared
 * file with one collective write through a file view of subarrays ("full" in BTIO). With `simple`, each row of five
 * doubles per point is a separate write. At the end the file is synced and read back the same way by other ranks than
 * the writers, and every value is checked.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 5 };

typedef struct {
    int start[3], size[3]; /* x, y, z; x is contiguous in the file */
} Cell;

static void check(int code, const char *what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "btio: %s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double value_at(int step, long point, int value) {
    return step * 0.5 + (double)(point % 10007) * 1e-3 + value * 11.0;
}

/* Returns the extent of cell `index` of `rank` on q x q ranks. */
static Cell cell_of(int rank, int index, int q, int side) {
    const int at[3] = {(rank % q + index) % q, ((rank / q - index) % q + q) % q, index};
    Cell cell;
    for (int d = 0; d < 3; d++) {
        const int extra = side % q, base = side / q;
        cell.size[d] = base + (at[d] < extra);
        cell.start[d] = at[d] * base + (at[d] < extra ? at[d] : extra);
    }
    return cell;
}

/* Calls `each` with the first point of every x row of the cells of a rank, in memory order. */
static void rows(const Cell *cells, int count, int side, double *data, int step, int filling, unsigned long *wrong) {
    for (int c = 0; c < count; c++)
        for (int z = 0; z < cells[c].size[2]; z++)
            for (int y = 0; y < cells[c].size[1]; y++) {
                const long row = ((long)(cells[c].start[2] + z) * side + cells[c].start[1] + y) * side + cells[c].start[0];
                for (int x = 0; x < cells[c].size[0]; x++)
                    for (int v = 0; v < VALUES; v++, data++) {
                        const double value = value_at(step, row + x, v);
                        if (filling)
                            *data = value;
                        else
                            *wrong += *data != value;
                    }
            }
}

/* Returns the datatype of a file view for the part of one step's cube that the cells cover. */
static MPI_Datatype view_of(const Cell *cells, int count, int side) {
    MPI_Datatype parts[count], view, point;
    MPI_Aint at[count];
    int ones[count];
    const int whole[3] = {side, side, side};
    check(MPI_Type_contiguous(VALUES, MPI_DOUBLE, &point), "type");
    for (int c = 0; c < count; c++) {
        const int size[3] = {cells[c].size[2], cells[c].size[1], cells[c].size[0]};
        const int start[3] = {cells[c].start[2], cells[c].start[1], cells[c].start[0]};
        check(MPI_Type_create_subarray(3, whole, size, start, MPI_ORDER_C, point, &parts[c]), "subarray");
        at[c] = 0;
        ones[c] = 1;
    }
    check(MPI_Type_create_struct(count, ones, at, parts, &view), "struct");
    check(MPI_Type_commit(&view), "commit");
    for (int c = 0; c < count; c++) MPI_Type_free(&parts[c]);
    MPI_Type_free(&point);
    return view;
}

/* Transfers all rows of one step, each with a separate call. */
static void move_rows(MPI_File file, int writing, const Cell *cells, int count, int side, int step, double *data) {
    for (int c = 0; c < count; c++)
        for (int z = 0; z < cells[c].size[2]; z++)
            for (int y = 0; y < cells[c].size[1]; y++) {
                const long row = ((long)(cells[c].start[2] + z) * side + cells[c].start[1] + y) * side + cells[c].start[0];
                const MPI_Offset at = ((MPI_Offset)step * side * side * side + row) * VALUES * (MPI_Offset)sizeof(double);
                const int many = cells[c].size[0] * VALUES;
                check(writing ? MPI_File_write_at(file, at, data, many, MPI_DOUBLE, MPI_STATUS_IGNORE)
                              : MPI_File_read_at(file, at, data, many, MPI_DOUBLE, MPI_STATUS_IGNORE),
                      writing ? "write" : "read");
                data += many;
            }
}

int main(int argc, char **argv) {
    int rank, ranks, q = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while ((q + 1) * (q + 1) <= ranks) q++;
    const int steps = argc > 2 ? atoi(argv[2]) : 10, side = argc > 3 ? atoi(argv[3]) : 64;
    const int simple = argc > 4 && strcmp(argv[4], "simple") == 0;
    if (argc < 2 || q * q != ranks || steps < 1 || side < q) {
        if (rank == 0) fprintf(stderr, "usage: btio FILE [STEPS [SIDE [simple]]], on a square number of ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const MPI_Offset cube = (MPI_Offset)side * side * side * VALUES * (MPI_Offset)sizeof(double);
    /* The sizes of cells differ by at most one row between ranks. */
    const size_t room = (size_t)q * (side / q + 1) * (side / q + 1) * (side / q + 1) * VALUES;
    double *data = malloc(room * sizeof *data);
    if (!data) MPI_Abort(MPI_COMM_WORLD, 1);
    unsigned long wrong = 0, all_wrong = 0;
    double times[2];

    for (int writing = 1; writing >= 0; writing--) {
        Cell cells[q];
        size_t many = 0;
        for (int c = 0; c < q; c++) {
            cells[c] = cell_of(writing ? rank : (rank + 1) % ranks, c, q, side);
            many += (size_t)cells[c].size[0] * cells[c].size[1] * cells[c].size[2] * VALUES;
        }
        MPI_Datatype view = view_of(cells, q, side);
        MPI_File file;
        const int mode = writing ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY;
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime(), computing = 0;
        check(MPI_File_open(MPI_COMM_WORLD, argv[1], mode, MPI_INFO_NULL, &file), argv[1]);
        for (int step = 0; step < steps; step++) {
            double since = MPI_Wtime();
            if (writing) rows(cells, q, side, data, step, 1, &wrong);
            computing += MPI_Wtime() - since;
            if (simple) {
                move_rows(file, writing, cells, q, side, step, data);
            } else {
                check(MPI_File_set_view(file, step * cube, MPI_DOUBLE, view, "native", MPI_INFO_NULL), "view");
                check(writing ? MPI_File_write_at_all(file, 0, data, (int)many, MPI_DOUBLE, MPI_STATUS_IGNORE)
                              : MPI_File_read_at_all(file, 0, data, (int)many, MPI_DOUBLE, MPI_STATUS_IGNORE),
                      writing ? "write" : "read");
            }
            since = MPI_Wtime();
            if (!writing) rows(cells, q, side, data, step, 0, &wrong);
            computing += MPI_Wtime() - since;
        }
        if (writing) check(MPI_File_sync(file), "sync");
        check(MPI_File_close(&file), "close");
        times[writing] = MPI_Wtime() - began - computing;
        MPI_Type_free(&view);
    }

    double slowest[2];
    MPI_Reduce(&wrong, &all_wrong, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Bcast(&all_wrong, 1, MPI_UNSIGNED_LONG, 0, MPI_COMM_WORLD);
    MPI_Reduce(times, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("btio: %d ranks, %d steps of %.1f MiB, %s: write+sync %.3f s, read %.3f s: %s\n", ranks, steps,
               cube / 1048576.0, simple ? "row by row" : "collectively", slowest[1], slowest[0],
               all_wrong ? "WRONG VALUES" : "every value is right");
    free(data);
    MPI_Finalize();
    return all_wrong ? 1 : 0;
}
