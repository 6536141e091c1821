/* An ordinary MPI-IO program without any reference to Weft: the checkpoints of S3D, a combustion code.
 *
 *   mpiexec -n 4 ./s3d_io DIRECTORY [CHECKPOINTS [SIDE]]       (5 checkpoints, 25 points)
 *
 * Each rank has SIDE^3 points of a three-dimensional mesh, which is divided into blocks along X, Y and Z. A checkpoint is
 * one new file with four global arrays in their canonical order, each written with one collective call: mass (11 values
 * per point), velocity (3), pressure and temperature. At the end all files are read back by other ranks than the writers,
 * and every value is checked. Times reach from open to close.
 */
#include "common.h"

enum { ARRAYS = 4, VALUES = 16 };

static const int values[ARRAYS] = {11, 3, 1, 1};

typedef struct {
    int parts[3], at[3], side; /* Z, Y, X; X is contiguous in the file */
} Mesh;

static Mesh mesh_of(int rank, int ranks, int side) {
    Mesh mesh = {.side = side};
    MPI_Dims_create(ranks, 3, mesh.parts);
    mesh.at[0] = rank / (mesh.parts[1] * mesh.parts[2]);
    mesh.at[1] = rank / mesh.parts[2] % mesh.parts[1];
    mesh.at[2] = rank % mesh.parts[2];
    return mesh;
}

/* Fills the four arrays of a rank with the expected values, or counts values that differ. */
static uint64_t content(const Mesh *m, double *data, uint64_t checkpoint, int filling) {
    const int side = m->side;
    uint64_t wrong = 0;
    for (int a = 0; a < ARRAYS; a++)
        for (int v = 0; v < values[a]; v++)
            for (int z = 0; z < side; z++)
                for (int y = 0; y < side; y++) {
                    const uint64_t plane = ((uint64_t)v * m->parts[0] + m->at[0]) * side + z;
                    const uint64_t row = (plane * m->parts[1] + m->at[1]) * side + y;
                    const uint64_t first = (row * m->parts[2] + m->at[2]) * side;
                    for (int x = 0; x < side; x++, data++) {
                        const double value = value_at(checkpoint * ARRAYS + a, first + x);
                        if (filling)
                            *data = value;
                        else
                            wrong += *data != value;
                    }
                }
    return wrong;
}

/* Returns the datatype of a file view for the block of a rank in one array. */
static MPI_Datatype view_of(const Mesh *m, int count) {
    const int side = m->side;
    const int whole[4] = {count, m->parts[0] * side, m->parts[1] * side, m->parts[2] * side};
    const int size[4] = {count, side, side, side};
    const int start[4] = {0, m->at[0] * side, m->at[1] * side, m->at[2] * side};
    MPI_Datatype view;
    check(MPI_Type_create_subarray(4, whole, size, start, MPI_ORDER_C, MPI_DOUBLE, &view), "subarray");
    check(MPI_Type_commit(&view), "commit");
    return view;
}

int main(int argc, char **argv) {
    program = "s3d_io";
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int checkpoints = argc > 2 ? atoi(argv[2]) : 5, side = argc > 3 ? atoi(argv[3]) : 25;
    if (argc < 2 || argc > 4 || checkpoints < 1 || side < 1) {
        if (rank == 0) fprintf(stderr, "usage: s3d_io DIRECTORY [CHECKPOINTS [SIDE]]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const size_t points = (size_t)side * side * side;
    double *data = room(points * VALUES * sizeof *data), times[2] = {0, 0};
    uint64_t wrong = 0;

    for (int writing = 1; writing >= 0; writing--) {
        const Mesh mesh = mesh_of(writing ? rank : (rank + 1) % ranks, ranks, side);
        MPI_Datatype views[ARRAYS];
        for (int a = 0; a < ARRAYS; a++) views[a] = view_of(&mesh, values[a]);
        for (int checkpoint = 0; checkpoint < checkpoints; checkpoint++) {
            char path[4096];
            snprintf(path, sizeof path, "%s/field.%d", argv[1], checkpoint);
            if (writing)
                content(&mesh, data, checkpoint, 1);
            else
                memset(data, 0, points * VALUES * sizeof *data);
            MPI_File file;
            MPI_Barrier(MPI_COMM_WORLD);
            const double began = MPI_Wtime();
            const int mode = writing ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY;
            check(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file), path);
            MPI_Offset base = 0;
            double *next = data;
            for (int a = 0; a < ARRAYS; a++) {
                const int many = (int)(points * values[a]);
                MPI_Status status;
                int got = 0;
                check(MPI_File_set_view(file, base, MPI_DOUBLE, views[a], "native", MPI_INFO_NULL), "view");
                check(writing ? MPI_File_write_at_all(file, 0, next, many, MPI_DOUBLE, &status)
                              : MPI_File_read_at_all(file, 0, next, many, MPI_DOUBLE, &status),
                      writing ? "write" : "read");
                MPI_Get_count(&status, MPI_DOUBLE, &got);
                if (got != many) wrong++;
                base += (MPI_Offset)many * ranks * (MPI_Offset)sizeof(double);
                next += many;
            }
            check(MPI_File_close(&file), "close");
            times[!writing] += MPI_Wtime() - began;
            if (!writing) wrong += content(&mesh, data, checkpoint, 0);
        }
        for (int a = 0; a < ARRAYS; a++) MPI_Type_free(&views[a]);
    }

    char what[128];
    snprintf(what, sizeof what, "%d checkpoints, %d^3 points per rank", checkpoints, side);
    const int code = report(what, (double)checkpoints * points * VALUES * sizeof(double) * ranks, times, wrong, 1);
    free(data);
    MPI_Finalize();
    return code;
}
