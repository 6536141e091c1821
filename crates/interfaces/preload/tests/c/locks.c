/* Locks between processes, waits, and the end of waits. */
#include "check.h"
static void on_alarm(int signal) { (void)signal; }
static struct flock range(short type, off_t start, off_t len) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return lock;
}
MAIN
    put("f", "0123456789");
    int fd = open("f", O_RDWR), to_child[2], to_parent[2];
    CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    char go;
    struct flock lock = range(F_WRLCK, 0, 5);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        int own = open("f", O_RDWR);
        lock = range(F_RDLCK, 4, 1);
        FAILS(fcntl(own, F_SETLK, &lock), EAGAIN);
        CHECK(fcntl(own, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_pid == getppid());
        CHECK(lock.l_start == 0 && lock.l_len == 5);
        lock = range(F_WRLCK, 5, 0);
        CHECK(fcntl(own, F_SETLK, &lock) == 0);
        /* A signal interrupts the wait if its handler does not restart calls. */
        struct sigaction action = {.sa_handler = on_alarm};
        sigaction(SIGALRM, &action, NULL);
        alarm(1);
        lock = range(F_WRLCK, 0, 1);
        FAILS(fcntl(own, F_SETLKW, &lock), EINTR);
        CHECK(write(to_parent[1], "w", 1) == 1);
        lock = range(F_WRLCK, 0, 1);
        CHECK(fcntl(own, F_SETLKW, &lock) == 0); /* until the parent unlocks */
        CHECK(write(to_parent[1], "g", 1) == 1 && read(to_child[0], &go, 1) == 1);
        _exit(0);
    }
    CHECK(read(to_parent[0], &go, 1) == 1 && go == 'w');
    lock = range(F_UNLCK, 0, 0);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && read(to_parent[0], &go, 1) == 1 && go == 'g');
    lock = range(F_RDLCK, 0, 1);
    FAILS(fcntl(fd, F_SETLK, &lock), EAGAIN);
    CHECK(write(to_child[1], "e", 1) == 1 && child_status(pid) == 0);
    CHECK(fcntl(fd, F_SETLKW, &lock) == 0); /* the child's locks ended with it */
    lock.l_whence = 9;
    FAILS(fcntl(fd, F_SETLK, &lock), EINVAL);
    int ro = open("f", O_RDONLY);
    lock = range(F_WRLCK, 0, 1);
    FAILS(fcntl(ro, F_SETLK, &lock), EBADF);

    /* flock belongs to the open file. */
    int a = open("f", O_RDWR), b = open("f", O_RDWR);
    CHECK(flock(a, LOCK_SH) == 0 && flock(b, LOCK_SH | LOCK_NB) == 0);
    FAILS(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(a, LOCK_UN) == 0 && flock(b, LOCK_EX | LOCK_NB) == 0);
    FAILS(flock(a, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    close(b);
    CHECK(flock(a, LOCK_EX | LOCK_NB) == 0);
    FAILS(flock(a, 0), EINVAL);
    /* Locks of the open file description. */
    b = open("f", O_RDWR);
    lock = range(F_WRLCK, 0, 3);
    CHECK(fcntl(a, F_OFD_SETLK, &lock) == 0);
    FAILS(fcntl(b, F_OFD_SETLK, &lock), EAGAIN);
    close(a);
    CHECK(fcntl(b, F_OFD_SETLK, &lock) == 0);
    close(b);
    CHECK(lseek(fd, 2, SEEK_SET) == 2 && lockf(fd, F_TLOCK, 3) == 0 && lockf(fd, F_TEST, 3) == 0);
    CHECK(lockf(fd, F_ULOCK, 0) == 0);
    return 0;
}
