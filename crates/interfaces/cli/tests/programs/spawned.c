/* spawned FILE [fail | die | lose | hang MARKER]
 *
 * All ranks write interleaved pieces of FILE with MPI-IO. Then, with a second argument, rank 1 returns 3, is killed, has its
 * parent killed, or tells through the file MARKER that it hangs. Prints how many delegates have answered requests. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1000, PIECES = 100 };

int main(int argc, char **argv)
{
    const char *act = argc > 2 ? argv[2] : "";
    int rank, size;
    MPI_File file;
    char piece[PIECE];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
    memset(piece, 'a' + rank, PIECE);
    for (int i = 0; i < PIECES; i++)
        MPI_File_write_at(file, ((MPI_Offset)i * size + rank) * PIECE, piece, PIECE, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && system("\"$WEFT\" delegate status --json > \"$STATUS\"") != 0)
        return 4;
    MPI_Barrier(MPI_COMM_WORLD);
    if (*act && rank == 1) {
        /* The file stays open: its bytes reach it through the end of the job alone. */
        if (strcmp(act, "die") == 0)
            raise(SIGKILL);
        if (strcmp(act, "lose") == 0)
            kill(getppid(), SIGKILL);
        if (strcmp(act, "hang") == 0)
            fclose(fopen(argv[3], "w"));
        if (strcmp(act, "fail") != 0)
            pause();
    }
    MPI_File_close(&file);
    MPI_Finalize();
    return strcmp(act, "fail") == 0 && rank == 1 ? 3 : 0;
}
