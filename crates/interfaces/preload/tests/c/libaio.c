/* Linux's own asynchronous I/O, by the system calls that libaio makes. */
#include "check.h"
#include <linux/aio_abi.h>
#include <sys/eventfd.h>

static long submit(aio_context_t context, long count, struct iocb **blocks) {
    return syscall(SYS_io_submit, context, count, blocks);
}
static long events(aio_context_t context, long least, long most, struct io_event *found) {
    struct timespec limit = {20, 0};
    return syscall(SYS_io_getevents, context, least, most, found, &limit);
}

MAIN
    aio_context_t context = 0;
    CHECK(syscall(SYS_io_setup, 64, &context) == 0);
    int fd = open("f", O_CREAT | O_RDWR, 0600), local = open("/tmp", O_TMPFILE | O_RDWR, 0600), reads = open("f", O_RDONLY);
    static char out[8][4096], in[8][4096];
    struct iocb block[8], *list[8];
    struct io_event found[16];
    /* Writes to both kinds of files in one call; each event names its block. */
    for (int i = 0; i < 8; i++) {
        memset(out[i], 'a' + i, 4096);
        block[i] = (struct iocb){.aio_data = 100 + i, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = i % 3 == 2 ? local : fd,
                                 .aio_buf = (uintptr_t)out[i], .aio_nbytes = 4096, .aio_offset = 4096 * i};
        list[i] = &block[i];
    }
    CHECK(submit(context, 8, list) == 8 && events(context, 8, 16, found) == 8);
    unsigned seen = 0;
    for (int i = 0; i < 8; i++) {
        CHECK(found[i].res == 4096 && found[i].obj == (uintptr_t)&block[found[i].data - 100]);
        seen |= 1u << (found[i].data - 100);
    }
    CHECK(seen == 0xff && block[0].aio_fildes == (uint32_t)fd && block[0].aio_lio_opcode == IOCB_CMD_PWRITE);
    /* Reads, one of which ends early and one of which begins behind the end. */
    for (int i = 0; i < 8; i++) {
        block[i].aio_lio_opcode = IOCB_CMD_PREAD;
        block[i].aio_buf = (uintptr_t)in[i];
    }
    block[0].aio_fildes = reads;
    block[0].aio_offset = 4096 * 7 + 4000;
    block[1].aio_offset = 1 << 20;
    CHECK(submit(context, 8, list) == 8 && events(context, 8, 16, found) == 8);
    for (int i = 0; i < 8; i++) {
        long at = found[i].data - 100;
        CHECK(found[i].res == (at == 0 ? 96 : at == 1 ? 0 : 4096) && in[at][0] == (at == 0 ? 'h' : at == 1 ? 0 : 'a' + at));
    }
    /* Vectors, syncs, and an eventfd. */
    int bell = eventfd(0, 0);
    struct iovec parts[2] = {{in[0], 10}, {in[1], 20}};
    block[0] = (struct iocb){.aio_data = 1, .aio_lio_opcode = IOCB_CMD_PREADV, .aio_fildes = fd, .aio_buf = (uintptr_t)parts,
                             .aio_nbytes = 2, .aio_offset = 4090, .aio_flags = IOCB_FLAG_RESFD, .aio_resfd = bell};
    block[1] = (struct iocb){.aio_data = 2, .aio_lio_opcode = IOCB_CMD_FSYNC, .aio_fildes = fd};
    CHECK(submit(context, 2, list) == 2 && events(context, 2, 2, found) == 2);
    for (int i = 0; i < 2; i++) CHECK(found[i].res == (found[i].data == 1 ? 30 : 0));
    uint64_t rung = 0;
    CHECK(read(bell, &rung, 8) == 8 && rung == 1 && in[0][5] == 'a' && in[0][6] == 'b' && in[1][19] == 'b');
    /* What is wrong from the start fails at once; a write to a descriptor for reading does so, too. */
    block[0] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = reads, .aio_buf = (uintptr_t)out[0], .aio_nbytes = 10};
    FAILS(submit(context, 1, list), EBADF);
    block[0].aio_fildes = fd;
    block[0].aio_lio_opcode = 77;
    FAILS(submit(context, 1, list), EINVAL);
    FAILS(submit(context, 1, NULL), EFAULT);
    FAILS(submit(context, -1, list), EINVAL);
    CHECK(submit(context, 0, list) == 0);
    CHECK(syscall(SYS_io_destroy, context) == 0);
    return 0;
}
