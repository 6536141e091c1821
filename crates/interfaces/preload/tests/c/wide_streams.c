/* Wide characters, positions, and streams that are opened again. */
#include "check.h"
#include <locale.h>
#include <stdarg.h>
#include <wchar.h>

static void all_of(FILE *f, const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    CHECK(vfprintf(f, format, rest) > 0);
    va_end(rest);
}

MAIN
    CHECK(setlocale(LC_ALL, "C.UTF-8"));
    wchar_t line[100];
    FILE *f = fopen("wide", "w+");
    CHECK(f && fwide(f, 0) == 0 && fwprintf(f, L"gr\u00fc\u00dfe %d\n", 42) == 9 && fwide(f, 0) > 0);
    CHECK(fputws(L"\u65e5\u672c\n", f) >= 0 && fputwc(L'\u20ac', f) == L'\u20ac' && putwc(L'\n', f) == L'\n');
    CHECK(fflush(f) == 0);
    struct stat st;
    CHECK(fstat(fileno(f), &st) == 0 && st.st_size == 11 + 7 + 4 && ftell(f) == st.st_size);
    rewind(f);
    CHECK(fgetws(line, 100, f) && wcscmp(line, L"gr\u00fc\u00dfe 42\n") == 0 && ftell(f) == 11);
    CHECK(fgetwc(f) == L'\u65e5' && ungetwc(L'x', f) == L'x' && getwc(f) == L'x' && getwc(f) == L'\u672c');
    CHECK(fseek(f, 18, SEEK_SET) == 0 && fgetwc(f) == L'\u20ac' && fgetwc(f) == L'\n');
    CHECK(fgetwc(f) == WEOF && feof(f) && !ferror(f));
    fpos_t place;
    CHECK(fseek(f, 11, SEEK_SET) == 0 && fgetpos(f, &place) == 0 && fgetwc(f) == L'\u65e5');
    CHECK(fsetpos(f, &place) == 0 && fgetwc(f) == L'\u65e5');
    CHECK(fclose(f) == 0);

    CHECK((f = fopen("wide", "r")) && fwscanf(f, L"gr\u00fc\u00dfe %d", &(int){0}) == 1 && fclose(f) == 0);
    CHECK((f = fopen("wide", "r,ccs=UTF-8")) && fgetwc(f) == L'g' && fclose(f) == 0);
    CHECK((f = fopen("latin", "w,ccs=ISO-8859-1")) && fputws(L"\u00fc\u00df", f) >= 0 && fclose(f) == 0);
    CHECK(same(get("latin"), "\xfc\xdf"));
    CHECK((f = fopen("latin", "r,ccs=ISO-8859-1")) && fgetwc(f) == L'\u00fc' && fclose(f) == 0);
    CHECK(fopen("latin", "r,ccs=NO-SUCH-SET") == NULL && errno == EINVAL);
    CHECK((f = fopen("wide", "r")) && setvbuf(f, NULL, _IONBF, 0) == 0 && fgetwc(f) == L'g' && fclose(f) == 0);
    CHECK((f = fopen("wide", "a+")) && fputws(L"\u00e4", f) >= 0 && fclose(f) == 0);
    CHECK(stat("wide", &st) == 0 && st.st_size == 24);
    CHECK((f = fopen("wide", "r+")) && fwide(f, -1) < 0 && fputws(L"x", f) == WEOF && fclose(f) == 0);
    /* Many characters, longer than every buffer. */
    CHECK((f = fopen("long", "w")));
    for (int i = 0; i < 100000; i++) CHECK(fputwc(L'\u00e0' + i % 20, f) != WEOF);
    CHECK(fclose(f) == 0 && stat("long", &st) == 0 && st.st_size == 200000);
    CHECK((f = fopen("long", "r")));
    for (int i = 0; i < 100000; i++) CHECK(fgetwc(f) == (wint_t)(L'\u00e0' + i % 20));
    CHECK(fgetwc(f) == WEOF && fclose(f) == 0);

    /* Positions of streams that append. */
    put("ft", "0123456789");
    CHECK((f = fopen("ft", "ab")) && ftell(f) == 10 && ftello(f) == 10);
    CHECK(fputs("xyz", f) >= 0 && ftell(f) == 13 && fflush(f) == 0 && ftell(f) == 13 && fclose(f) == 0);
    char text[50] = "";
    CHECK((f = fopen("ft", "a+")) && ftell(f) == 0 && fgets(text, 4, f) && ftell(f) == 3);
    CHECK(fseek(f, 0, SEEK_CUR) == 0 && fputs("!", f) >= 0 && ftell(f) == 14);
    CHECK(fgetpos(f, &place) == 0 && fseek(f, 2, SEEK_SET) == 0 && fgetc(f) == '2');
    CHECK(fsetpos(f, &place) == 0 && ftell(f) == 14 && fclose(f) == 0);
    int fd = open("ft", O_WRONLY | O_APPEND);
    CHECK((f = fdopen(fd, "a")) && ftell(f) == 0 && fputs("+", f) >= 0 && ftell(f) == 15 && fclose(f) == 0);
    fd = open("ft", O_WRONLY);
    CHECK((f = fdopen(fd, "a")) && ftell(f) == 15 && (fcntl(fd, F_GETFL) & O_APPEND) && fclose(f) == 0);
    for (int mode = 0; mode < 3; mode++) {
        int kinds[] = {_IOFBF, _IOLBF, _IONBF};
        static char own[64];
        CHECK((f = fopen("ft", "a")) && setvbuf(f, mode == 1 ? own : NULL, kinds[mode], mode == 1 ? sizeof own : 0) == 0);
        long before = ftell(f);
        CHECK(before == 15 + 4 * mode && fputs("abc\n", f) >= 0 && ftell(f) == before + 4);
        CHECK(fseek(f, 0, SEEK_CUR) == 0 && ftell(f) == before + 4 && fclose(f) == 0);
        CHECK((f = fopen("ft", "r+")) && setvbuf(f, NULL, kinds[mode], 0) == 0 && ftell(f) == 0);
        CHECK(fgetc(f) == '0' && ftell(f) == 1 && fseek(f, 3, SEEK_CUR) == 0 && ftell(f) == 4 && fgetc(f) == '4');
        CHECK(ungetc('4', f) == '4' && ftell(f) == 4 && fgetc(f) == '4' && fseek(f, -1, SEEK_END) == 0);
        CHECK(ftell(f) == before + 3 && fclose(f) == 0);
    }
    /* The descriptor's position follows a flush, and a stream follows its descriptor. */
    CHECK((f = fopen("ft", "r+")) && fgetc(f) == '0' && fflush(f) == 0 && lseek(fileno(f), 0, SEEK_CUR) == 1);
    CHECK(lseek(fileno(f), 5, SEEK_SET) == 5 && fgetc(f) == '5' && fclose(f) == 0);

    /* A stream that is opened again stays the same. */
    CHECK((f = fopen("one", "w")) && fputs("one", f) >= 0);
    fd = fileno(f);
    CHECK(freopen("two", "w+", f) == f && fileno(f) == fd && same(get("one"), "one"));
    CHECK(fputs("two", f) >= 0 && fflush(f) == 0 && same(get("two"), "two"));
    CHECK(freopen("/dev/null", "r", f) == f && fileno(f) == fd && fgetc(f) == EOF);
    CHECK(freopen("two", "r", f) == f && fgetc(f) == 't' && fputc('x', f) == EOF);
    CHECK(freopen(NULL, "a+", f) == f && fputs("+", f) >= 0 && fflush(f) == 0 && same(get("two"), "two+"));
    CHECK(freopen("one", "a", f) == f && ftell(f) == 3 && fputs("1", f) >= 0 && fclose(f) == 0 && same(get("one"), "one1"));
    CHECK((f = fopen("one", "w")) && fputs("lost?", f) >= 0 && freopen("one", "w", f) == f && fclose(f) == 0);
    CHECK(same(get("one"), ""));
    CHECK((f = fopen("one", "r")) && freopen("no/such/file", "r", f) == NULL && errno == ENOENT);
    CHECK((f = fopen("/dev/null", "w")) && freopen("three", "w", f) == f && fputws(L"\u00fc", f) >= 0 && fclose(f) == 0);
    CHECK(same(get("three"), "\xc3\xbc"));

    /* Wide characters on the standard output, which becomes a file in the usual ways. */
    int saved = dup(1);
    CHECK(freopen("out", "w", stdout) == stdout && wprintf(L"h\u00e9llo %d\n", 7) == 8 && fflush(stdout) == 0);
    CHECK(same(get("out"), "h\xc3\xa9llo 7\n"));
    CHECK(freopen("in", "w", stdout) == stdout);
    fd = open("by_dup", O_CREAT | O_WRONLY, 0600);
    CHECK(fputws(L"before\n", stdout) >= 0 && fflush(stdout) == 0 && dup2(fd, 1) == 1 && close(fd) == 0);
    CHECK(putwchar(L'\u00fc') == L'\u00fc' && fflush(stdout) == 0);
    CHECK(same(get("in"), "before\n") && same(get("by_dup"), "\xc3\xbc"));
    CHECK(close(1) == 0 && open("by_close", O_CREAT | O_WRONLY, 0600) == 1);
    CHECK(fputws(L"closed", stdout) >= 0 && fflush(stdout) == 0 && same(get("by_close"), "closed"));
    CHECK(dup2(saved, 1) == 1);
    CHECK(freopen("out", "r", stdin) == stdin && getwchar() == L'h' && getwchar() == L'\u00e9');
    CHECK(fgetws(line, 100, stdin) && wcscmp(line, L"llo 7\n") == 0);
    CHECK((f = fopen("bytes", "w+")));
    all_of(f, "%s %d", "text", 5);
    CHECK(fflush(f) == 0 && same(get("bytes"), "text 5") && fclose(f) == 0);
    fd = open("by_number", O_CREAT | O_WRONLY, 0600);
    CHECK(dprintf(fd, "%d and %s", 1, "two") == 9 && close(fd) == 0 && same(get("by_number"), "1 and two"));
    return 0;
}
