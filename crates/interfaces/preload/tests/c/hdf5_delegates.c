/* Collective HDF5 on a file that delegates serve: argv[1] is a directory. */
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 64, COLUMNS = 33 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    char name[512];
    snprintf(name, sizeof name, "%s/data.h5", argv[1]);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), transfer = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE);
    hsize_t whole[2] = {ROWS, (hsize_t)COLUMNS * ranks}, own[2] = {ROWS, COLUMNS};
    hsize_t start[2] = {0, (hsize_t)COLUMNS * rank};
    static int values[ROWS][COLUMNS];
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) values[row][column] = row * 10000 + COLUMNS * rank + column;
    hid_t file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hid_t space = H5Screate_simple(2, whole, NULL), memory = H5Screate_simple(2, own, NULL);
    hid_t set = H5Dcreate2(file, "values", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, own, NULL);
    long wrong = H5Dwrite(set, H5T_NATIVE_INT, memory, space, transfer, values) < 0;
    H5Dclose(set);
    wrong += H5Fclose(file) < 0;
    MPI_Barrier(MPI_COMM_WORLD);
    file = H5Fopen(name, H5F_ACC_RDONLY, access);
    set = H5Dopen2(file, "values", H5P_DEFAULT);
    int other = (rank + 1) % ranks;
    start[1] = (hsize_t)COLUMNS * other;
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, own, NULL);
    wrong += H5Dread(set, H5T_NATIVE_INT, memory, space, transfer, values) < 0;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++)
            wrong += values[row][column] != row * 10000 + COLUMNS * other + column;
    H5Dclose(set);
    H5Fclose(file);
    long all = 0;
    MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld values are wrong\n", all);
    MPI_Finalize();
    return 0;
}
