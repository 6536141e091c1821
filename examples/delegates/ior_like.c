/* An ordinary MPI program without any reference to Weft: the access pattern of the IOR benchmark on one shared file.
 *
 *   mpiexec -n 4 ./ior_like FILE [OPTION...]
 *
 *   -t BYTES  transfer size (47,008)        -c  collective MPI-IO calls
 *   -s COUNT  transfers per rank (400)      -p  POSIX calls (without -c and -p: independent MPI-IO calls)
 *   -b COUNT  transfers per block (1)       -e  sync before close
 *   -r        also read, each rank the blocks of its neighbor        -R  only read
 *   -v        check every byte that was read (with -r or -R)         -a  MPI's atomic mode
 *
 * A block of COUNT transfers of each rank follows the block of the rank before it. With -b 1 the transfers of all ranks
 * are interleaved. With -b equal to -s each rank has a segment of its own. Times reach from open to close. Buffers
 * are filled before and checked after.
 */
#include "common.h"

#include <fcntl.h>
#include <unistd.h>

enum { COLLECTIVE, INDEPENDENT, POSIX };

static const char *const names[] = {"collective", "independent", "POSIX"};

static void fail(const char *what) {
    fprintf(stderr, "%s: ", program);
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Fills `data` with the expected bytes from offset `at`, or counts bytes that differ. */
static uint64_t content(unsigned char *data, uint64_t at, size_t len, int filling) {
    uint64_t wrong = 0;
    for (size_t done = 0; done < len;) {
        const uint64_t word = word_at((at + done) / 8);
        const size_t skip = (at + done) % 8, many = len - done < 8 - skip ? len - done : 8 - skip;
        if (filling)
            memcpy(data + done, (const char *)&word + skip, many);
        else if (memcmp(data + done, (const char *)&word + skip, many) != 0)
            wrong += many;
        done += many;
    }
    return wrong;
}

/* Returns the number of the transfer in the file that is transfer `i` of a rank. */
static MPI_Offset offset_of(long i, long per_block, int rank, int ranks) {
    return (MPI_Offset)(i / per_block * ranks + rank) * per_block + i % per_block;
}

static void complete(long got, long wanted, MPI_Offset at) {
    if (got == wanted) return;
    fprintf(stderr, "%s: %ld of %ld bytes at offset %lld\n", program, got, wanted, (long long)at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void with_posix(const char *path, int writing, int sync, unsigned char *data, long transfer, long transfers,
                       long per_block, int rank, int ranks) {
    const int fd = open(path, writing ? O_WRONLY | O_CREAT : O_RDONLY, 0666);
    if (fd < 0) fail(path);
    for (long i = 0; i < transfers; i++, data += transfer) {
        const MPI_Offset at = offset_of(i, per_block, rank, ranks) * transfer;
        const ssize_t got = writing ? pwrite(fd, data, transfer, at) : pread(fd, data, transfer, at);
        if (got < 0) fail(path);
        complete(got, transfer, at);
    }
    if (writing && sync && fsync(fd) != 0) fail("fsync");
    if (close(fd) != 0) fail("close");
}

static void with_mpi(const char *path, int writing, int sync, int atomic, int way, unsigned char *data, long transfer,
                     long transfers, long per_block, int rank, int ranks) {
    const int mode = writing ? MPI_MODE_CREATE | MPI_MODE_WRONLY : MPI_MODE_RDONLY;
    MPI_File file;
    check(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file), path);
    if (atomic) check(MPI_File_set_atomicity(file, 1), "atomic mode");
    for (long i = 0; i < transfers; i++, data += transfer) {
        const MPI_Offset at = offset_of(i, per_block, rank, ranks) * transfer;
        const int many = (int)transfer;
        MPI_Status status;
        int got = 0;
        if (writing)
            check(way == COLLECTIVE ? MPI_File_write_at_all(file, at, data, many, MPI_BYTE, &status)
                                    : MPI_File_write_at(file, at, data, many, MPI_BYTE, &status),
                  "write");
        else
            check(way == COLLECTIVE ? MPI_File_read_at_all(file, at, data, many, MPI_BYTE, &status)
                                    : MPI_File_read_at(file, at, data, many, MPI_BYTE, &status),
                  "read");
        MPI_Get_count(&status, MPI_BYTE, &got);
        complete(got, transfer, at);
    }
    if (writing && sync) check(MPI_File_sync(file), "sync");
    check(MPI_File_close(&file), "close");
}

int main(int argc, char **argv) {
    program = "ior_like";
    int rank, ranks, way = INDEPENDENT, checked = 0, sync = 0, first = 1, last = 1, atomic = 0, option;
    long transfer = 47008, transfers = 400, per_block = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while ((option = getopt(argc, argv, "t:s:b:cperRva")) != -1) switch (option) {
            case 't': transfer = atol(optarg); break;
            case 's': transfers = atol(optarg); break;
            case 'b': per_block = atol(optarg); break;
            case 'c': way = COLLECTIVE; break;
            case 'p': way = POSIX; break;
            case 'e': sync = 1; break;
            case 'r': last = 0; break;
            case 'R': first = last = 0; break;
            case 'v': checked = 1; break;
            case 'a': atomic = 1; break;
            default: argc = 0;
        }
    if (optind + 1 != argc || transfer < 1 || transfers < 1 || per_block < 1 || transfers % per_block != 0) {
        if (rank == 0) fprintf(stderr, "usage: ior_like FILE [-t BYTES] [-s COUNT] [-b COUNT] [-cperRva]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    const char *path = argv[optind];
    unsigned char *data = room((size_t)transfers * transfer);
    uint64_t wrong = 0;
    double times[2] = {-1, -1};

    for (int writing = first; writing >= last; writing--) {
        const int mine = writing ? rank : (rank + 1) % ranks;
        memset(data, 0, (size_t)transfers * transfer);
        for (long i = 0; writing && i < transfers; i++)
            content(data + i * transfer, (uint64_t)offset_of(i, per_block, mine, ranks) * transfer, transfer, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        const double began = MPI_Wtime();
        if (way == POSIX)
            with_posix(path, writing, sync, data, transfer, transfers, per_block, mine, ranks);
        else
            with_mpi(path, writing, sync, atomic, way, data, transfer, transfers, per_block, mine, ranks);
        times[!writing] = MPI_Wtime() - began;
        for (long i = 0; !writing && checked && i < transfers; i++)
            wrong += content(data + i * transfer, (uint64_t)offset_of(i, per_block, mine, ranks) * transfer, transfer, 0);
    }

    char what[128];
    snprintf(what, sizeof what, "%s, %ld x %ld B in blocks of %ld", names[way], transfers, transfer, per_block);
    const int code = report(what, (double)transfers * transfer * ranks, times, wrong, checked && !last);
    free(data);
    MPI_Finalize();
    return code;
}
