/* An ordinary parallel HDF5 program without any reference to Weft.
 *
 *   mpiexec -n 4 ./hdf5_field FILE [SIDE]
 *
 * All ranks write one file through HDF5's MPI-IO driver: a field of SIDE x SIDE doubles (2048) in blocks of
 * rows with collective writes; a list of particles with independent writes of 47,008 bytes per rank and step; and
 * attributes. Then the file is flushed to the disks and reopened, and each rank checks the data of its neighbor.
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 64, PER_STEP = 47008 / 8 };

static double field_at(hsize_t row, hsize_t column) {
    return (double)row * 1e-3 + (double)(column % 97) * 0.5 - (double)((row * 31 + column) % 1009);
}

static int64_t particle_at(hsize_t index) {
    return (int64_t)(index * 2654435761u % 1000003) - 500000;
}

#define MUST(expression)                                                            \
    do {                                                                            \
        if ((expression) < 0) {                                                     \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #expression); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                           \
        }                                                                           \
    } while (0)

static hid_t transfer(H5FD_mpio_xfer_t mode) {
    hid_t plist = H5Pcreate(H5P_DATASET_XFER);
    MUST(plist);
    MUST(H5Pset_dxpl_mpio(plist, mode));
    return plist;
}

/* Writes or reads `count` elements of a one- or two-dimensional dataset from `start`. */
static void move(int writing, hid_t set, hid_t type, int rank, const hsize_t *start, const hsize_t *count,
                 void *data, H5FD_mpio_xfer_t mode) {
    hid_t space = H5Dget_space(set);
    MUST(space);
    MUST(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    hid_t memory = H5Screate_simple(rank, count, NULL);
    MUST(memory);
    hid_t plist = transfer(mode);
    if (writing)
        MUST(H5Dwrite(set, type, memory, space, plist, data));
    else
        MUST(H5Dread(set, type, memory, space, plist, data));
    H5Pclose(plist);
    H5Sclose(memory);
    H5Sclose(space);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const hsize_t side = argc == 3 ? strtoul(argv[2], NULL, 10) : 2048;
    if (argc < 2 || argc > 3 || side == 0 || side % ranks != 0) {
        if (rank == 0) fprintf(stderr, "usage: hdf5_field FILE [SIDE], on a number of ranks that divides SIDE (2048)\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const hsize_t rows = side / ranks;
    double *field = malloc(rows * side * sizeof *field);
    int64_t *particles = malloc(PER_STEP * sizeof *particles);
    if (!field || !particles) MPI_Abort(MPI_COMM_WORLD, 1);

    double began = MPI_Wtime();
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    MUST(access);
    MUST(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, access);
    MUST(file);

    const hsize_t square[2] = {side, side}, list[1] = {(hsize_t)STEPS * ranks * PER_STEP};
    hid_t space = H5Screate_simple(2, square, NULL);
    hid_t set = H5Dcreate2(file, "field", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    MUST(set);
    H5Sclose(space);
    for (hsize_t row = 0; row < rows; row++)
        for (hsize_t column = 0; column < side; column++)
            field[row * side + column] = field_at(rank * rows + row, column);
    const hsize_t start[2] = {rank * rows, 0}, count[2] = {rows, side};
    move(1, set, H5T_NATIVE_DOUBLE, 2, start, count, field, H5FD_MPIO_COLLECTIVE);
    H5Dclose(set);

    space = H5Screate_simple(1, list, NULL);
    set = H5Dcreate2(file, "particles", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    MUST(set);
    H5Sclose(space);
    for (int step = 0; step < STEPS; step++) {
        const hsize_t first[1] = {((hsize_t)step * ranks + rank) * PER_STEP}, many[1] = {PER_STEP};
        for (hsize_t i = 0; i < PER_STEP; i++) particles[i] = particle_at(first[0] + i);
        move(1, set, H5T_NATIVE_INT64, 1, first, many, particles, H5FD_MPIO_INDEPENDENT);
    }
    hid_t scalar = H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(set, "steps", H5T_STD_I32LE, scalar, H5P_DEFAULT, H5P_DEFAULT);
    const int steps = STEPS;
    MUST(H5Awrite(attribute, H5T_NATIVE_INT, &steps));
    H5Aclose(attribute);
    H5Sclose(scalar);
    H5Dclose(set);
    MUST(H5Fflush(file, H5F_SCOPE_GLOBAL));
    MUST(H5Fclose(file));
    double wrote = MPI_Wtime() - began;

    began = MPI_Wtime();
    file = H5Fopen(argv[1], H5F_ACC_RDONLY, access);
    MUST(file);
    uint64_t wrong = 0;
    const int neighbor = (rank + 1) % ranks;
    set = H5Dopen2(file, "field", H5P_DEFAULT);
    MUST(set);
    const hsize_t other[2] = {neighbor * rows, 0};
    move(0, set, H5T_NATIVE_DOUBLE, 2, other, count, field, H5FD_MPIO_COLLECTIVE);
    for (hsize_t row = 0; row < rows; row++)
        for (hsize_t column = 0; column < side; column++)
            wrong += field[row * side + column] != field_at(neighbor * rows + row, column);
    H5Dclose(set);
    set = H5Dopen2(file, "particles", H5P_DEFAULT);
    MUST(set);
    for (int step = 0; step < STEPS; step++) {
        const hsize_t first[1] = {((hsize_t)step * ranks + neighbor) * PER_STEP}, many[1] = {PER_STEP};
        move(0, set, H5T_NATIVE_INT64, 1, first, many, particles, H5FD_MPIO_INDEPENDENT);
        for (hsize_t i = 0; i < PER_STEP; i++) wrong += particles[i] != particle_at(first[0] + i);
    }
    H5Dclose(set);
    MUST(H5Fclose(file));
    double read = MPI_Wtime() - began;
    H5Pclose(access);

    uint64_t all_wrong = 0;
    double times[2] = {wrote, read}, slowest[2];
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(times, slowest, 2, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        double mib = ((double)side * side * 8 + (double)list[0] * 8) / 1048576;
        printf("hdf5_field: %d ranks, %.1f MiB in two datasets: write+flush %.2f s, read %.2f s: %s\n", ranks, mib,
               slowest[0], slowest[1], all_wrong ? "WRONG VALUES" : "every value is right");
    }
    free(field);
    free(particles);
    MPI_Finalize();
    return all_wrong ? 1 : 0;
}
