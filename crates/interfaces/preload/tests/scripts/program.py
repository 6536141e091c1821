"""What Python programs do with files, in the directory of the first argument."""
import fcntl, glob, io, mmap, os, pathlib, shutil, sqlite3, stat, subprocess, sys, tempfile, threading, zipfile

os.chdir(sys.argv[1])
print(os.getcwd(), os.listdir())
with open("f", "w") as f:
    f.write("hello\n" * 1000)
    print(f.tell())
with open("f", "rb+") as f:
    print(len(f.read()), f.seek(-6, 2), f.readline(), f.seek(0), f.write(b"HELLO"))
print(open("f").readline().strip(), os.path.getsize("f"), os.stat("f").st_size, os.path.exists("g"))
with open("f", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
    print(m[:5], m.find(b"hello"), len(m))
with open("f", "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
    m[0:1] = b"J"
    print(m[:5])
os.makedirs("a/b/c")
pathlib.Path("a/b/t.txt").write_text("text")
print(sorted(str(p) for p in pathlib.Path(".").rglob("*")), sorted(glob.glob("a/**", recursive=True)))
shutil.copy("f", "g"), shutil.copy2("f", "h"), shutil.copytree("a", "a2"), shutil.move("h", "a2/h")
print(sorted(os.listdir("a2")), open("g").read() == open("f").read())
print([(e.name, e.is_dir(), e.is_file()) for e in sorted(os.scandir("."), key=lambda e: e.name)])
print(list((d, sorted(s), sorted(n)) for d, s, n in sorted(os.walk("a2"))))
fd = os.open("raw", os.O_CREAT | os.O_RDWR, 0o600)
print(os.write(fd, b"0123456789"), os.pread(fd, 3, 2), os.pwrite(fd, b"XY", 4), os.lseek(fd, 0, 0), os.read(fd, 20))
os.ftruncate(fd, 4), os.fsync(fd), os.fchmod(fd, 0o640)
print(os.fstat(fd).st_size, oct(os.fstat(fd).st_mode), os.get_inheritable(fd))
fcntl.flock(fd, fcntl.LOCK_EX), fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 2)
os.dup2(fd, 60)
print(os.pread(60, 4, 0))
print(os.writev(fd, [b"a", b"bc"]), os.posix_fallocate(fd, 0, 100), os.fstat(fd).st_size)
os.close(fd)
with open("/dev/null", "wb") as null, open("f", "rb") as f:
    print(os.sendfile(null.fileno(), f.fileno(), 0, 1000))
print(subprocess.run(["cat", "raw"], capture_output=True).stdout[:3])
with open("g", "rb") as i, open("o", "wb") as o:
    print(subprocess.run(["tr", "a-z", "A-Z"], stdin=i, stdout=o).returncode)
print(open("o").readline().strip())
print(subprocess.run("cat a/b/t.txt && pwd", shell=True, cwd="a", capture_output=True, text=True).returncode)
print(subprocess.run("pwd; ls", shell=True, cwd="a", capture_output=True, text=True).stdout)
print(subprocess.check_output(["python3", "-c", "print(open('raw','rb').read(3), __import__('os').getcwd())"], text=True))
with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=open("piped", "wb")) as p:
    p.stdin.write(b"through a pipe")
print(open("piped").read())
os.symlink("f", "link"), os.link("f", "hard")
print(os.readlink("link"), os.path.realpath("link"), os.stat("hard").st_nlink, os.path.islink("link"))
os.utime("f", (1000000001, 1000000002)), os.rename("hard", "harder"), os.replace("harder", "g"), os.chmod("g", 0o600)
print(os.stat("f").st_mtime, stat.filemode(os.stat("g").st_mode))
for bad in (lambda: open("missing"), lambda: os.mkdir("a"), lambda: os.rmdir("a"), lambda: os.listdir("f"), lambda: open("a")):
    try:
        bad()
        print("no error")
    except OSError as e:
        print(type(e).__name__, e.errno)
with tempfile.TemporaryDirectory(dir=".") as t:
    with tempfile.NamedTemporaryFile(dir=t) as f:
        f.write(b"x" * 100000)
        f.flush()
        print(os.path.getsize(f.name))
    with tempfile.TemporaryFile(dir=t) as f:
        print(f.write(b"unnamed"), f.seek(0), f.read())
def work(n):
    for i in range(50):
        with open(f"t{n}", "w") as f:
            f.write(f"{n} {i}")
        assert open(f"t{n}").read() == f"{n} {i}"
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads], [t.join() for t in threads]
print(sorted(glob.glob("t?")))
with zipfile.ZipFile("z.zip", "w") as z:
    z.write("f"), z.writestr("s", "string")
print(zipfile.ZipFile("z.zip").namelist(), zipfile.ZipFile("z.zip").testzip())
db = sqlite3.connect("d.db")
db.execute("create table t (a, b)")
db.executemany("insert into t values (?, ?)", ((i, str(i)) for i in range(1000)))
db.commit()
print(db.execute("select sum(a), count(b) from t").fetchone())
db.close()
pid = os.fork()
if pid == 0:
    open("child", "w").write("forked")
    os._exit(3)
print(os.waitpid(pid, 0)[1] >> 8, open("child").read())
print(os.statvfs(".").f_namemax, os.access("f", os.R_OK), os.access("f", os.X_OK))
os.chdir("a"), shutil.rmtree("../a2")
print(os.path.relpath("."), os.path.abspath("."), len(os.listdir("..")))
