/* Memory mappings and asynchronous I/O. */
#include "check.h"
MAIN
    char buf[20000];
    for (int i = 0; i < 20000; i++) buf[i] = (char)(i % 251);
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    CHECK(write(fd, buf, 20000) == 20000);
    char *map = mmap(NULL, 20000, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map, buf, 20000) == 0 && munmap(map, 20000) == 0);
    map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 8192);
    CHECK(map != MAP_FAILED && memcmp(map, buf + 8192, 8192) == 0);
    map[0] = 'x';
    char one;
    CHECK(pread(fd, &one, 1, 8192) == 1 && one == buf[8192] && munmap(map, 8192) == 0);
    FAILS(mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 17), EINVAL);
    FAILS(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0), EINVAL);
    map = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (getenv("WEFT_TEST_REFUSED")) {
        CHECK(map == MAP_FAILED && errno == ENODEV);
    } else {
        CHECK(map != MAP_FAILED);
        map[5000] = 'Y', map[19999] = 'Z';
        CHECK(msync(map, 20000, MS_SYNC) == 0 && pread(fd, &one, 1, 5000) == 1 && one == 'Y');
        map[1] = 'W';
        CHECK(munmap(map, 20000) == 0 && pread(fd, &one, 1, 1) == 1 && one == 'W');
        CHECK(pread(fd, &one, 1, 19999) == 1 && one == 'Z');
        struct stat st;
        CHECK(fstat(fd, &st) == 0 && st.st_size == 20000);
    }
    struct aiocb cb = {.aio_fildes = fd, .aio_buf = "async", .aio_nbytes = 5, .aio_offset = 100};
    CHECK(aio_write(&cb) == 0);
    const struct aiocb *list[1] = {&cb};
    while (aio_error(&cb) == EINPROGRESS) CHECK(aio_suspend(list, 1, NULL) == 0);
    CHECK(aio_error(&cb) == 0 && aio_return(&cb) == 5);
    char five[5];
    struct aiocb in = {.aio_fildes = fd, .aio_buf = five, .aio_nbytes = 5, .aio_offset = 100};
    in.aio_lio_opcode = LIO_READ;
    int zero = open("/dev/zero", O_RDONLY);
    struct aiocb foreign = {.aio_fildes = zero, .aio_buf = buf, .aio_nbytes = 9, .aio_lio_opcode = LIO_READ};
    struct aiocb *both[2] = {&in, &foreign};
    CHECK(lio_listio(LIO_WAIT, both, 2, NULL) == 0 && aio_return(&in) == 5 && memcmp(five, "async", 5) == 0);
    CHECK(aio_return(&foreign) == 9);
    struct aiocb sync = {.aio_fildes = fd};
    CHECK(aio_fsync(O_SYNC, &sync) == 0);
    while (aio_error(&sync) == EINPROGRESS) {}
    CHECK(aio_return(&sync) == 0);
    return 0;
}
