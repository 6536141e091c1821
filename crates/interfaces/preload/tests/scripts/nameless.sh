# Open files without a name, passed on to other programs.
cd / && export TMPDIR=$1 && exec 2>&1
big=$(mktemp --tmpdir=/tmp) && seq 20000 > "$big"
document() { echo "$1 <<'END'"; cat "$big"; echo END; }
for shell in bash dash; do
    echo "- here-documents in $shell"
    document 'cat' > "$big.sh"; $shell "$big.sh" | cksum
    document 'exec cat' > "$big.sh"; $shell "$big.sh" | cksum
    document 'env env cat' > "$big.sh"; $shell "$big.sh" | cksum
    { echo 'n=0; while read -r l; do n=$((n + 1)); done <<END'; cat "$big"; echo END; echo 'echo $n'; } > "$big.sh"; $shell "$big.sh"
    { echo 'while read -r l; do /bin/echo $l; done <<END'; head -n 30 "$big"; echo END; } > "$big.sh"; $shell "$big.sh" | cksum
done
echo "- temporary files and children"
python3 - <<'END'
import os, subprocess, sys, tempfile
with tempfile.TemporaryFile() as f:
    subprocess.run(["sh", "-c", "echo from a child; exec seq 1000"], stdout=f, check=True)
    f.seek(0)
    print(len(f.read().splitlines()))
g = tempfile.TemporaryFile()
g.write(b"input\n" * 1000), g.flush(), g.seek(0)
print(subprocess.run(["wc", "-l"], stdin=g, capture_output=True, text=True).stdout.strip())
# The parent ends before its child uses the file for the first time.
g.seek(0), os.set_inheritable(g.fileno(), True)
ended, end = os.pipe()
told, tell = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.close(end), os.read(ended, 1)
        os.write(tell, b"%d" % len(os.read(g.fileno(), 10000)))
    os._exit(0)
os.wait(), os.close(end)
print(os.read(told, 100))
# A file without a name that another program than its creator executes from.
fd = os.open(os.environ["TMPDIR"], os.O_TMPFILE | os.O_RDWR)
os.write(fd, b"unnamed"), os.lseek(fd, 0, 0), os.dup2(fd, 0), os.close(fd)
sys.stdout.flush()
os.execv("/bin/cat", ["cat"])
END
echo
echo "- sort"; sort -S 50K -T "$1" -r "$big" | head -n 1; ls -A "$1" | wc -l
rm "$big" "$big.sh"
