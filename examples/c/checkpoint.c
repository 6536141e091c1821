/*
 * Writes a checkpoint of several threads into one shared file, striped over SSD targets, and reads it back.
 *
 *     cc checkpoint.c -o checkpoint $(pkg-config --cflags --libs weft) -lpthread
 *     weft run -- ./checkpoint
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft.h>

enum { THREADS = 4, RECORDS = 64, RECORD_LEN = 47008 };

static weft_file_t *file;

static void fail(const char *what) {
    fprintf(stderr, "checkpoint: %s: %s\n", what, weft_error());
    exit(1);
}

/* Record r of thread t is record r * THREADS + t of the file. */
static off_t place(int record, int thread) {
    return (off_t)(record * THREADS + thread) * RECORD_LEN;
}

static void *work(void *argument) {
    int me = (int)(long)argument;
    char *record = malloc(RECORD_LEN);
    if (record == NULL)
        exit(1);
    for (int r = 0; r < RECORDS; r++) {
        memset(record, 'a' + (r + me) % 26, RECORD_LEN);
        if (weft_pwrite(file, record, RECORD_LEN, place(r, me)) != RECORD_LEN)
            fail("write");
    }
    free(record);
    return NULL;
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "checkpoint";
    weft_layout_spec_t spec = WEFT_LAYOUT_SPEC_INIT;
    weft_column_t columns[64];
    pthread_t threads[THREADS];

    weft_t *weft = weft_connect(NULL);
    if (weft == NULL)
        fail("connect");
    spec.stripe_size = 1 << 20;
    spec.class_name = "ssd";
    file = weft_open_layout(weft, path, O_RDWR | O_CREAT | O_TRUNC, 0644, &spec);
    if (file == NULL)
        fail(path);

    for (long t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, work, (void *)t) != 0)
            return 1;
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    if (weft_fsync(file) != 0)
        fail("sync");

    char *record = malloc(RECORD_LEN);
    if (record == NULL)
        return 1;
    for (int r = 0; r < RECORDS; r++)
        for (int t = 0; t < THREADS; t++) {
            if (weft_pread(file, record, RECORD_LEN, place(r, t)) != RECORD_LEN)
                fail("read");
            if (record[0] != 'a' + (r + t) % 26 || memcmp(record, record + 1, RECORD_LEN - 1) != 0) {
                fprintf(stderr, "checkpoint: record %d of thread %d is not what was written\n", r, t);
                return 1;
            }
        }
    free(record);

    ssize_t count = weft_get_layout(weft, path, columns, 64);
    if (count < 0)
        fail("layout");
    printf("%s: %lld bytes on %zd targets:", path, (long long)weft_size(file), count);
    for (ssize_t i = 0; i < count && i < 64; i++)
        printf(" %u", columns[i].target);
    printf("\n");
    if (weft_close(file) != 0 || weft_disconnect(weft) != 0)
        fail("close");
    return 0;
}
