# Precedes the other programs.
import os


def child(work):
    """Runs `work` in a new process, and returns its answer."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(w, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(w)
    with os.fdopen(r) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return eval(text)


