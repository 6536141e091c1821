/* Performs random operations on files of a directory and prints each one as a trace must record it. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static uint64_t state;
static uint64_t below(uint64_t n) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

#define FILES 3
static char buffer[1 << 17];

static void tell(const char *op, int file, long offset, long len) {
    if (len >= 0) {
        char line[100];
        int n = snprintf(line, sizeof line, "%s %d %ld %ld\n", op, file, offset, len);
        if (write(1, line, n) != n) exit(9);
    }
}

static int whole(int result) { return result == 0 ? 0 : -1; }

int main(int argc, char **argv) {
    if (argc != 4 || chdir(argv[1])) return 2;
    int on_weft = strncmp(argv[1], "/weft", 5) == 0;
    state = strtoull(argv[2], 0, 10);
    long count = atol(argv[3]);
    int fds[FILES];
    char name[8] = "f0";
    memset(buffer, 'x', sizeof buffer);
    for (int i = 0; i < FILES; i++) {
        name[1] = '0' + i;
        fds[i] = open(name, O_RDWR | O_CREAT | (i == 2 ? O_APPEND : 0), 0644);
        if (fds[i] < 0) return 3;
        tell("create", i, 0, 0);
    }
    for (long n = 0; n < count; n++) {
        int i = below(FILES), fd = fds[i], append = i == 2;
        long len = below(below(2) ? 100 : 70000), offset = below(200000), at;
        struct iovec parts[3] = {{buffer, len / 2}, {buffer, 0}, {buffer + len / 2, len - len / 2}};
        name[1] = '0' + i;
        switch (below(24)) {
        case 0: at = lseek(fd, 0, SEEK_CUR); tell("read", i, at, read(fd, buffer, len)); break;
        case 1: at = lseek(fd, 0, append ? SEEK_END : SEEK_CUR); tell("write", i, at, write(fd, buffer, len)); break;
        case 2: tell("read", i, offset, pread(fd, buffer, len, offset)); break;
        case 3:
            if (append) offset = lseek(fd, 0, SEEK_END);
            tell("write", i, offset, pwrite(fd, buffer, len, offset));
            break;
        case 4: at = lseek(fd, 0, SEEK_CUR); tell("read", i, at, readv(fd, parts, 3)); break;
        case 5: at = lseek(fd, 0, append ? SEEK_END : SEEK_CUR); tell("write", i, at, writev(fd, parts, 3)); break;
        case 6: tell("read", i, offset, preadv(fd, parts, 3, offset)); break;
        case 7:
            if (append) offset = lseek(fd, 0, SEEK_END);
            tell("write", i, offset, pwritev(fd, parts, 3, offset));
            break;
        case 8: lseek(fd, offset, SEEK_SET); break;
        case 9: if (ftruncate(fd, offset) == 0) tell("truncate", i, offset, 0); break;
        case 10: tell("sync", i, 0, whole(below(2) ? fsync(fd) : fdatasync(fd))); break;
        case 11: { /* another descriptor for the same position */
            int copy = below(2) ? dup(fd) : fcntl(fd, F_DUPFD_CLOEXEC, 50);
            at = lseek(fd, 0, SEEK_CUR);
            tell("read", i, at, read(copy, buffer, len));
            close(copy);
            break;
        }
        case 12: { /* closed and opened again */
            close(fd);
            tell("close", i, 0, 0);
            fds[i] = open(name, O_RDWR | (append ? O_APPEND : 0));
            tell("open", i, 0, 0);
            break;
        }
        case 13: { struct stat st; tell("stat", i, 0, whole(fstat(fd, &st))); break; }
        case 14: { struct stat st; tell("stat", i, 0, whole(stat(name, &st))); break; }
        case 15: { /* a missing name gives no record */
            struct stat st;
            if (stat("nothing", &st) == 0 || open("nothing", O_RDONLY) >= 0 || unlink("nothing") == 0) return 4;
            break;
        }
        case 16: tell("mkdir", 9, 0, whole(mkdir("f9", 0755))); tell("rmdir", 9, 0, whole(rmdir("f9"))); break;
        case 17: { /* between two files */
            int j = below(2), k = 1 - j;
            off_t from = below(100000), to = below(100000);
            long got = copy_file_range(fds[j], &from, fds[k], &to, len, 0);
            if (got >= 0) { tell("read", j, from - got, got); tell("write", k, to - got, got); }
            break;
        }
        case 18: { /* a stream that reads */
            FILE *file = fopen(name, "r");
            if (!file) return 5;
            tell("open", i, 0, 0);
            if (!on_weft) {
                /* With a buffer, the C library decides how much it reads. */
                setvbuf(file, 0, _IONBF, 0);
                fseek(file, offset, SEEK_SET);
                long got = fread(buffer, 1, len, file);
                if (got > 0) tell("read", i, offset, got);
            }
            fclose(file);
            tell("close", i, 0, 0);
            break;
        }
        case 19: { /* a stream that writes, in part by calls that are not intercepted */
            FILE *file = fopen("f8", "w");
            if (!file) return 6;
            tell("create", 8, 0, 0);
            if (!on_weft) {
                setvbuf(file, 0, _IONBF, 0);
                long first = fprintf(file, "%0*d", 1 + (int)below(90), 7);
                fwrite(buffer, 1, len, file);
                tell("write", 8, 0, first);
                if (len > 0) tell("write", 8, first, len);
                fputs("abc", file);
                tell("write", 8, first + len, 3);
                for (int k = 0; k < 5; k++) putc('x', file);
                tell("write", 8, first + len + 3, 5);
            }
            fclose(file);
            tell("close", 8, 0, 0);
            tell("unlink", 8, 0, whole(unlink("f8")));
            break;
        }
        case 20: { /* asynchronous */
            struct aiocb block = {.aio_fildes = fds[0], .aio_buf = buffer, .aio_nbytes = len, .aio_offset = offset};
            const struct aiocb *list[1] = {&block};
            int reads = below(2);
            if (reads ? aio_read(&block) : aio_write(&block)) return 7;
            while (aio_error(&block) == EINPROGRESS) aio_suspend(list, 1, 0);
            tell(reads ? "read" : "write", 0, offset, aio_return(&block));
            break;
        }
        case 21: { /* to a pipe, copied by the kernel */
            int pipe_fds[2];
            off_t from = offset;
            if (pipe(pipe_fds)) return 8;
            tell("read", i, offset, sendfile(pipe_fds[1], fd, &from, len % 4000));
            close(pipe_fds[0]);
            close(pipe_fds[1]);
            /* And to another file, at the position of its descriptor. */
            int k = i == 0, start = below(100000);
            lseek(fds[k], start, SEEK_SET);
            from = offset;
            long got = sendfile(fds[k], fd, &from, len);
            if (got < 0) return 11;
            tell("read", i, offset, got);
            tell("write", k, start, got);
            break;
        }
        case 22: if (truncate(name, offset) == 0) tell("truncate", i, offset, 0); break;
        case 23: { /* no file at all */
            int zero = open("/dev/zero", O_RDONLY);
            if (read(zero, buffer, len) != len) return 10;
            memset(buffer, 'x', len);
            close(zero);
            break;
        }
        }
    }
    for (int i = 0; i < FILES; i++) {
        name[1] = '0' + i;
        close(fds[i]);
        tell("close", i, 0, 0);
        tell("unlink", i, 0, whole(unlink(name)));
    }
    return 0;
}
