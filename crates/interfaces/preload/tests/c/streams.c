/* Buffered streams, fileno, freopen, the standard streams. */
#include "check.h"
MAIN
    FILE *f = fopen("f", "w+");
    CHECK(f && fileno(f) >= 3);
    for (int i = 0; i < 10000; i++) CHECK(fprintf(f, "line %d\n", i) > 0);
    CHECK(ftell(f) == 98890 - 0 || ftell(f) > 0);
    CHECK(fflush(f) == 0);
    struct stat st;
    CHECK(fstat(fileno(f), &st) == 0 && st.st_size == ftell(f));
    rewind(f);
    char line[100];
    int n = 0, value;
    while (fgets(line, sizeof line, f)) CHECK(sscanf(line, "line %d", &value) == 1 && value == n++);
    CHECK(n == 10000 && feof(f) && !ferror(f));
    CHECK(fseek(f, -10, SEEK_END) == 0 && fgets(line, sizeof line, f) && same(line, "line 9999\n"));
    CHECK(fseeko(f, 5, SEEK_SET) == 0 && getc(f) == '0' && ungetc('7', f) == '7' && getc(f) == '7');
    CHECK(fseek(f, 0, SEEK_SET) == 0 && fwrite("LINE", 1, 4, f) == 4 && fclose(f) == 0);
    CHECK((f = fopen("f", "r")) && fread(line, 1, 6, f) == 6 && memcmp(line, "LINE 0", 6) == 0);
    CHECK(fputc('x', f) == EOF);
    fclose(f);
    CHECK((f = fopen("f", "a")) && fputs("end\n", f) >= 0 && fclose(f) == 0);
    CHECK(stat("f", &st) == 0 && st.st_size == 98894);
    CHECK(fopen("f", "wx") == NULL && errno == EEXIST);
    CHECK(fopen("missing", "r") == NULL && errno == ENOENT);
    CHECK(fopen("f", "q") == NULL && errno == EINVAL);
    CHECK((f = fopen("f", "re")) && (fcntl(fileno(f), F_GETFD) & FD_CLOEXEC));
    fclose(f);
    int fd = open("g", O_CREAT | O_RDWR, 0600);
    CHECK((f = fdopen(fd, "w")) && fileno(f) == fd && fputs("by fdopen", f) >= 0 && fclose(f) == 0);
    FAILS(close(fd), EBADF);
    CHECK(same(get("g"), "by fdopen"));
    char *text = NULL;
    size_t room = 0;
    f = fopen("f", "r");
    CHECK(getline(&text, &room, f) == 7);
    free(text);
    fclose(f);
    /* The standard output in the middle of a program, there and back. */
    fflush(stdout);
    int saved = dup(1);
    fd = open("out", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    CHECK(dup2(fd, 1) == 1 && close(fd) == 0);
    printf("printed %d\n", 1);
    puts("put");
    CHECK(fflush(stdout) == 0 && dup2(saved, 1) == 1);
    CHECK(same(get("out"), "printed 1\nput\n"));
    CHECK(freopen("in", "w", stdout) != NULL);
    printf("reopened\n");
    fflush(stdout);
    CHECK(same(get("in"), "reopened\n"));
    CHECK(freopen("in", "r", stdin) != NULL && fgets(line, sizeof line, stdin) && same(line, "reopened\n"));
    CHECK(freopen("/dev/null", "w", stdout) != NULL && printf("lost\n") == 5);
    return 0;
}
