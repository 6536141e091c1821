/* Buffered streams. Each has a file of its own, because two buffers over one file differ by their lengths. */
#include "fuzz.h"
#include <stdio_ext.h>
#include <wchar.h>

static void stream_path(struct world *w, int at, char *path) { sprintf(path, "%s/s%d", w->root, at); }

static const char *draw_stream_mode(struct draw *d) {
    static const char *const modes[] = {"r", "w", "a", "r+", "w+", "a+", "r+b", "a+", "w+e", "rb+", "w+x", "ab", "z", ""};
    return modes[below(d, 14)];
}

static void buffer_of(struct world *w, struct draw *d, FILE *file) {
    static const int kinds[] = {_IOFBF, _IOLBF, _IONBF, 77};
    if (!chance(d, 30)) return;
    int kind = kinds[below(d, 4)];
    size_t len = 1 + below(d, 5000);
    say(w, " setvbuf %d %zu", kind, len);
    SUCCESS(w, setvbuf(file, NULL, kind, len));
}

/* A new stream, its position and the length of its file. */
static void say_stream(struct world *w, FILE *file) {
    struct stat st;
    errno = 0;
    long at = ftell(file);
    say(w, " tell");
    say_result(w, at);
    say(w, " eof %d error %d", feof(file), ferror(file));
    if (fflush(file) == 0 && fstat(fileno(file), &st) == 0) say(w, " size %lld", (long long)st.st_size);
}

static void op_fopen(struct world *w, struct draw *d) {
    if (!drawn(STREAMS_AREA)) return;
    char path[PATH_MAX + 16], name[16];
    int at = slot(d, STREAMS), how = (int)below(d, 4);
    const char *mode = draw_stream_mode(d);
    FILE *file = w->stream[at];
    stream_path(w, at, path);
    if (!drawn(FTELL_APPEND) && *mode == 'a') mode = "r+";
    say(w, "[%d](s%d, %s)", how, at, mode);
    if (how == 0 && file) {
        /* By its path, or in place. */
        bool null = drawn(FREOPEN_NULL) && chance(d, 30);
        say(w, null ? " reopen NULL" : " reopen");
        errno = 0;
        FILE *fresh = freopen(null ? NULL : path, mode, file);
        say(w, fresh ? " = ok" : " = NULL");
        if (fresh) say(w, drawn(STREAM_POINTERS) && fresh != file ? " moved" : "");
        w->stream[at] = fresh;
        w->last[at] = 0;
        if (fresh) say_stream(w, fresh);
        return;
    }
    if (file) {
        say(w, " close");
        SUCCESS(w, fclose(file));
    }
    w->stream[at] = NULL;
    w->last[at] = 0;
    errno = 0;
    if (how == 1) {
        int fd = open(path, chance(d, 70) ? O_RDWR | O_CREAT : chance(d, 50) ? O_RDONLY : O_WRONLY | O_CREAT, 0644);
        say_success(w, fd);
        if (fd < 0) return;
        errno = 0;
        file = fdopen(fd, mode);
        if (!file) {
            say_result(w, -1);
            close(fd);
            return;
        }
        say(w, " fl %o", fcntl(fd, F_GETFL));
    } else {
        file = fopen(path, mode);
    }
    (void)name;
    say_success(w, file ? 0 : -1);
    if (!file) return;
    w->stream[at] = file;
    buffer_of(w, d, file);
    say_stream(w, file);
}

/* Between reading and writing ISO C wants a movement or a flush. */
static bool turn(struct world *w, int at, char to) {
    if (w->last[at] && w->last[at] != to) {
        say(w, " turn");
        int result = fseek(w->stream[at], 0, SEEK_CUR);
        say_success(w, result);
        if (result != 0) return false;
    }
    w->last[at] = to;
    return true;
}

static bool is_wide(FILE *file) { return fwide(file, 0) > 0; }

static void read_stream(struct world *w, struct draw *d, FILE *file) {
    int how = (int)below(d, 8);
    size_t size = 1 + below(d, 9), count = draw_length(d) / size, capacity = 0;
    char *line = NULL;
    memset(w->buffer, 0, 4096);
    /* The C library does it when it fills its buffer, but not for longer reads. */
    fwide(file, -1);
    say(w, " [%d]", how);
    errno = 0;
    switch (how) {
    case 0:
    case 1: {
        /* Of a stream for writing, glibc reads what does not fit its buffer, whose length is that of a block. */
        if (!__freadable(file) && count > 400 / size) count = 400 / size;
        size_t n = fread(w->buffer, size, count, file);
        say(w, " fread(%zu, %zu) = %zu", size, count, n);
        say_bytes(w, w->buffer, n * size);
        break;
    }
    case 2: say(w, " fgetc %d", fgetc(file)); break;
    case 3: {
        /* Another byte than the last one makes glibc crash in later writes. */
        int c = fgetc(file);
        say(w, " %d ungetc %d", c, ungetc(c, file));
        if (chance(d, 70)) say(w, " again %d", getc(file));
        break;
    }
    case 4: {
        char *got = fgets(w->buffer, (int)below(d, 600) + 1, file);
        say(w, got ? " line" : " none");
        if (got) say_bytes(w, got, strlen(got));
        break;
    }
    case 5: {
        /* A line of gigabytes takes as long as a hang. */
        struct stat st;
        if (fstat(fileno(file), &st) == 0 && st.st_size > (off_t)64 << 20) break;
        ssize_t n = chance(d, 50) ? getline(&line, &capacity, file) : getdelim(&line, &capacity, 'a', file);
        say_result(w, n);
        if (n > 0) say_bytes(w, line, (size_t)n);
        free(line);
        break;
    }
    case 6: {
        char word[40] = "";
        int n = fscanf(file, "%39s", word);
        say(w, " %d", n);
        say_bytes(w, word, strlen(word));
        break;
    }
    default: {
        int n = below(d, 20), c = 0;
        while (n-- && (c = getc(file)) != EOF) say(w, " %x", c);
    }
    }
}

static void read_wide(struct world *w, struct draw *d, FILE *file) {
    wchar_t line[100];
    errno = 0;
    if (chance(d, 50)) {
        say(w, " fgetwc %ld", (long)fgetwc(file));
    } else {
        wchar_t *got = fgetws(line, (int)below(d, 99) + 1, file);
        say(w, got ? " wide line" : " none");
        if (got) say_bytes(w, got, wcslen(got) * sizeof *got);
    }
    /* No ungetwc: glibc aborts at a later fseek from the present position. */
}

static void op_read(struct world *w, struct draw *d) {
    if (!drawn(STREAMS_AREA)) return;
    int at = slot(d, STREAMS);
    FILE *file = w->stream[at];
    say(w, "(s%d)", at);
    if (!file) return;
    if (!turn(w, at, 'r')) return;
    if (is_wide(file)) read_wide(w, d, file);
    else read_stream(w, d, file);
    if (chance(d, 60)) say_stream(w, file);
}

static void op_write(struct world *w, struct draw *d) {
    if (!drawn(STREAMS_AREA)) return;
    int at = slot(d, STREAMS), how = (int)below(d, 5);
    FILE *file = w->stream[at];
    size_t len = draw_length(d);
    say(w, "(s%d, %d, %zu)", at, how, len);
    if (!file) return;
    if (!turn(w, at, 'w')) return;
    fill(w, d, len + 8);
    for (size_t i = 0; i < len; i++) w->buffer[i] = "abc \n0123\n x\tyz"[(unsigned char)w->buffer[i] % 15];
    w->buffer[len] = 0;
    bool at_once;
    errno = 0;
    if (is_wide(file)) {
        if (how < 2) at_once = fputwc(L'x', file) == WEOF;
        else if (how < 4) at_once = fputws(L"wide text\n", file) < 0;
        else at_once = fwprintf(file, L"%d %s\n", (int)len, "text") < 0;
    } else if (how == 0) at_once = fputc('x', file) == EOF;
    else if (how == 1) at_once = fputs(w->buffer, file) == EOF;
    else if (how == 2) at_once = fprintf(file, "%zu %s", len, "text\n") < 0;
    else at_once = fwrite(w->buffer, 1, len, file) < len;
    /* Whether a write fails at once or at the flush depends on the buffer's length. */
    int first = errno;
    errno = 0;
    int flushed = fflush(file);
    if (at_once) errno = first;
    say_success(w, at_once ? -1 : flushed);
    say_stream(w, file);
}

static void op_move(struct world *w, struct draw *d) {
    if (!drawn(STREAMS_AREA)) return;
    int at = slot(d, STREAMS), how = (int)below(d, 8);
    FILE *file = w->stream[at];
    long to = (long)draw_offset(d);
    static const int whences[] = {SEEK_SET, SEEK_CUR, SEEK_END, SEEK_SET, 9};
    int whence = whences[below(d, 5)];
    say(w, "[%d](s%d, %ld, %d)", how, at, to, whence);
    if (!file) return;
    errno = 0;
    fpos_t here;
    switch (how) {
    case 0: rewind(file); break;
    case 1: clearerr(file); break;
    case 2:
        SUCCESS(w, fgetpos(file, &here));
        SUCCESS(w, fseek(file, 3, SEEK_SET));
        SUCCESS(w, fsetpos(file, &here));
        break;
    case 3: SUCCESS(w, fflush(chance(d, 10) ? NULL : file)); break;
    case 4:
        if (drawn(WIDE)) say(w, " wide %d", fwide(file, chance(d, 50) ? 1 : -1) > 0);
        break;
    case 5: SUCCESS(w, fseeko(file, to, whence)); break;
    default: SUCCESS(w, fseek(file, to, whence));
    }
    if (how != 1 && how != 4 && !strstr(w->text, "= -1")) w->last[at] = 0;
    say_stream(w, file);
}

const struct operation stream_operations[] = {
    {"fopen", 5, op_fopen}, {"stream_read", 7, op_read}, {"stream_write", 6, op_write}, {"stream_move", 6, op_move},
    {NULL, 0, NULL}};
