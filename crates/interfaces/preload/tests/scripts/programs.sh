# Programs and scripts on the file system, as shells, Python and other programs start them.
cd / && d=$1 && mkdir -p "$d/bin" "$d/ve/bin" && exec 2>&1
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
script() { cat > "$1" && chmod +x "$1"; }

script "$d/bin/lib.sh" <<'X'
greeting=hello
X
script "$d/bin/tool" <<'X'
#!/bin/sh -u
. "$(dirname "$0")/lib.sh" && echo "$greeting from $0 with $# $*"
if [ -e /proc/self/fd/3 ]; then echo a descriptor is left; fi
X
script "$d/bin/sibling.py" <<'X'
value = 7
X
script "$d/bin/pytool" <<'X'
#!/usr/bin/env python3
import sys, sibling
print(sibling.value, __file__, sys.argv, sys.path[0])
X
script "$d/bin/options" <<'X'
#!/usr/bin/env -S sh -e -c 'echo "split $0 $1"; false; echo not here'
X
script "$d/bin/plain" <<'X'
echo "no interpreter: $0 $*"
X
script "$d/bin/odd" <<X
#! $d/bin/show  one argument 
X
script "$d/bin/odder" <<X
#!$d/bin/odd
X
script "$d/bin/show" <<'X'
#!/bin/echo show
X
script "$d/bin/nowhere" <<X
#!$d/bin/missing
X
script "$d/bin/folder" <<X
#!$d/bin
X
echo '#!/bin/sh' > "$d/bin/denied"
for level in 1 2 3 4 5 6; do script "$d/bin/level$level" <<X
#!$d/bin/level$((level - 1))
X
done
script "$d/bin/level0" <<'X'
#!/bin/echo
X
cp /bin/echo "$d/bin/echo" && ln -s "$python" "$d/ve/bin/python3" && ln -s python3 "$d/ve/bin/python"
echo "home = $(dirname "$python")" > "$d/ve/pyvenv.cfg"
script "$d/ve/bin/hello" <<X
#!$d/ve/bin/python3
import sys
print(sys.argv, sys.prefix, sys.executable)
X

echo "- by path"; "$d/bin/tool" x "y z"
echo "- relative"; (cd "$d/bin" && ./tool 1 && cd .. && bin/tool 2 && cd ve && ../bin/tool 3)
echo "- by PATH"; (PATH=$d/bin:$PATH && tool a && pytool b && echo c && env tool d && exec tool e)
echo "- programs"; "$d/bin/echo" copied; "$d/bin/pytool" p; "$d/bin/options" arg; echo "status $?"
echo "- interpreters on the file system"; "$d/bin/odd" o; "$d/bin/odder" p; "$d/ve/bin/hello" 1
(PATH=$d/ve/bin:$PATH && hello 2 && python -c 'import sys; print(sys.prefix, sys.executable)')
for level in 0 4 5 6; do "$d/bin/level$level" end >"$d/out"; echo "level $level: $?, $(wc -w <"$d/out") words"; done
echo "- refused"
for name in nowhere folder denied none; do
    python3 -c 'import os, sys
try: os.execv(sys.argv[1], ["x"])
except OSError as e: print(os.path.basename(sys.argv[1]), e.strerror)' "$d/bin/$name"
done
echo "- by other programs"
python3 - "$d" <<'X'
import os, subprocess, sys
d = sys.argv[1]
def said(*argv, **how): print(argv[1:], subprocess.run(argv, stdout=subprocess.PIPE, text=True, **how).stdout.strip())
said(d + "/bin/tool", "run"); said(d + "/ve/bin/hello", "run"); said("tool", "cwd", cwd=d + "/bin", env={"PATH": d + "/bin:" + os.environ["PATH"]})
said("./pytool", "cwd", cwd=d + "/bin"); said(d + "/bin/echo", "no fds", close_fds=False)
for spawn in (os.posix_spawn, os.posix_spawnp):
    sys.stdout.flush(); os.waitpid(spawn(d + "/bin/tool", ["odd name", "spawned"], os.environ), 0)
os.environ["PATH"] += ":" + d + "/bin"
sys.stdout.flush(); os.waitpid(os.posix_spawnp("tool", ["tool", "found"], os.environ), 0); os.system("tool system")
print(os.popen(d + "/ve/bin/hello popen").read().strip())
sys.stdout.flush()
fd = os.open(d + "/bin/echo", os.O_RDONLY)
if os.fork() == 0: os.execve(fd, ["echo", "by descriptor"], os.environ)
os.wait()
X
find "$d/bin" -name tool -exec {} found \; ; (PATH=$PATH:$d/bin && env plain by execvp); echo word | xargs "$d/bin/tool"
echo "- local script, interpreter on the file system"
local=$(mktemp) && printf '#!%s/ve/bin/python3\nimport sys\nprint(sys.prefix, len(sys.argv))\n' "$d" > "$local" && chmod +x "$local"
"$local" x; python3 -c 'import subprocess, sys; subprocess.run([sys.argv[1], "y", "z"])' "$local"; rm "$local"
