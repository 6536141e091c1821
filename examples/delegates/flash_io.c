/* An ordinary parallel HDF5 program without any reference to Weft: the files of FLASH, an astrophysics code.
 *
 *   mpiexec -n 4 ./flash_io PREFIX [SIDE [BLOCKS]]       (8 cells, 80 blocks)
 *
 * Rank i has BLOCKS + i mod 3 blocks of SIDE^3 cells and 24 variables per cell. Three files are written through HDF5 with
 * collective transfers, one dataset per variable: PREFIX.chk with all variables as doubles, and two plot files with four
 * variables as floats, at the centers and at the corners of the cells. Each file begins with datasets that describe the
 * mesh. The blocks of a rank follow those of the rank before it. At the end other ranks than the writers read the variables,
 * and every value is checked. Times reach from creating to closing a file.
 */
#include "common.h"

#include <hdf5.h>

enum { VARIABLES = 24, PLOTTED = 4, FILES = 3, TREE = 15 };

#define MUST(expression)                                                            \
    do {                                                                            \
        if ((expression) < 0) {                                                     \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #expression); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                           \
        }                                                                           \
    } while (0)

typedef struct {
    const char *suffix;
    int variables;
    int corners; /* one value more than cells in each direction */
    int floats;
} Kind;

static const Kind kinds[FILES] = {
    {"chk", VARIABLES, 0, 0},
    {"plt_cnt", PLOTTED, 0, 1},
    {"plt_crn", PLOTTED, 1, 1},
};

typedef struct {
    hsize_t first, count, all; /* blocks of this rank, and of all ranks */
} Blocks;

static Blocks blocks_of(int rank, int ranks, int blocks) {
    Blocks found = {0, 0, 0};
    for (int i = 0; i < ranks; i++) {
        if (i == rank) found.first = found.all;
        found.all += blocks + i % 3;
    }
    found.count = blocks + rank % 3;
    return found;
}

/* Fills the values of a variable in the blocks of a rank, or counts values that differ. */
static uint64_t content(void *data, int floats, int variable, hsize_t first, hsize_t count, int filling) {
    uint64_t wrong = 0;
    for (hsize_t i = 0; i < count; i++) {
        const double value = value_at(variable, first + i);
        if (filling && floats)
            ((float *)data)[i] = (float)value;
        else if (filling)
            ((double *)data)[i] = value;
        else
            wrong += (floats ? ((float *)data)[i] : ((double *)data)[i]) != value;
    }
    return wrong;
}

/* Writes or reads the part of a rank of a dataset whose first dimension counts blocks. */
static void move(int writing, hid_t file, const char *name, hid_t type, int dimensions, const hsize_t *rest,
                 const Blocks *blocks, void *data) {
    hsize_t all[4] = {blocks->all}, start[4] = {blocks->first}, count[4] = {blocks->count};
    for (int i = 1; i < dimensions; i++) all[i] = count[i] = rest[i - 1];
    hid_t space = H5Screate_simple(dimensions, all, NULL), memory = H5Screate_simple(dimensions, count, NULL);
    hid_t set = writing ? H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)
                        : H5Dopen2(file, name, H5P_DEFAULT);
    MUST(set);
    MUST(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
    hid_t plist = H5Pcreate(H5P_DATASET_XFER);
    MUST(H5Pset_dxpl_mpio(plist, H5FD_MPIO_COLLECTIVE));
    if (writing)
        MUST(H5Dwrite(set, type, memory, space, plist, data));
    else
        MUST(H5Dread(set, type, memory, space, plist, data));
    H5Pclose(plist);
    H5Dclose(set);
    H5Sclose(memory);
    H5Sclose(space);
}

/* Writes the datasets that describe the mesh. */
static void describe(hid_t file, const Blocks *blocks, int *tree, double *places) {
    const hsize_t links[1] = {TREE}, axes[1] = {3}, box[2] = {3, 2};
    move(1, file, "refine level", H5T_NATIVE_INT, 1, NULL, blocks, tree);
    move(1, file, "node type", H5T_NATIVE_INT, 1, NULL, blocks, tree);
    move(1, file, "gid", H5T_NATIVE_INT, 2, links, blocks, tree);
    move(1, file, "coordinates", H5T_NATIVE_DOUBLE, 2, axes, blocks, places);
    move(1, file, "block size", H5T_NATIVE_DOUBLE, 2, axes, blocks, places);
    move(1, file, "bounding box", H5T_NATIVE_DOUBLE, 3, box, blocks, places);
}

int main(int argc, char **argv) {
    program = "flash_io";
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int side = argc > 2 ? atoi(argv[2]) : 8, per_rank = argc > 3 ? atoi(argv[3]) : 80;
    if (argc < 2 || argc > 4 || side < 1 || per_rank < 1) {
        if (rank == 0) fprintf(stderr, "usage: flash_io PREFIX [SIDE [BLOCKS]]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const size_t block = (size_t)(side + 1) * (side + 1) * (side + 1);
    const size_t most = (size_t)(per_rank + 2) * block * sizeof(double);
    char *data = room(VARIABLES * most);
    int *tree = calloc((size_t)(per_rank + 2) * TREE, sizeof *tree);
    double *places = calloc((size_t)(per_rank + 2) * 6, sizeof *places), times[2] = {0, 0}, bytes = 0;
    uint64_t wrong = 0;
    if (!tree || !places) MPI_Abort(MPI_COMM_WORLD, 1);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    MUST(access);
    MUST(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));

    for (int writing = 1; writing >= 0; writing--) {
        const Blocks mine = blocks_of(writing ? rank : (rank + 1) % ranks, ranks, per_rank);
        for (int k = 0; k < FILES; k++) {
            const Kind *kind = &kinds[k];
            const hsize_t edge = side + kind->corners, cells = edge * edge * edge, rest[3] = {edge, edge, edge};
            const hid_t type = kind->floats ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
            char path[4096], name[16];
            snprintf(path, sizeof path, "%s.%s", argv[1], kind->suffix);
            memset(data, 0, VARIABLES * most);
            for (int v = 0; writing && v < kind->variables; v++)
                content(data + v * most, kind->floats, v, mine.first * cells, mine.count * cells, 1);
            MPI_Barrier(MPI_COMM_WORLD);
            const double began = MPI_Wtime();
            hid_t file = writing ? H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access) : H5Fopen(path, H5F_ACC_RDONLY, access);
            MUST(file);
            if (writing) describe(file, &mine, tree, places);
            for (int v = 0; v < kind->variables; v++) {
                snprintf(name, sizeof name, "var%02d", v);
                move(writing, file, name, type, 4, rest, &mine, data + v * most);
            }
            MUST(H5Fclose(file));
            times[!writing] += MPI_Wtime() - began;
            for (int v = 0; !writing && v < kind->variables; v++)
                wrong += content(data + v * most, kind->floats, v, mine.first * cells, mine.count * cells, 0);
            if (writing) bytes += (double)mine.all * cells * kind->variables * (kind->floats ? 4 : 8);
        }
    }
    H5Pclose(access);

    char what[128];
    snprintf(what, sizeof what, "three files, %d blocks of %d^3 cells per rank", per_rank, side);
    const int code = report(what, bytes, times, wrong, 1);
    free(data);
    free(tree);
    free(places);
    MPI_Finalize();
    return code;
}
