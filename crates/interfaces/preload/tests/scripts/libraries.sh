# Shared libraries on the file system, loaded by programs; one needs another from its own directory.
cd / && d=$1 && mkdir -p "$d/lib" "$d/ve/deep" && exec 2>&1
work=$(mktemp -d --tmpdir=/tmp) && cd "$work" || exit 1
echo 'int seven(void) { return 7; }' > inner.c
echo 'int seven(void); int eight(void) { return seven() + 1; }' > outer.c
cc -shared -fPIC -o libinner.so inner.c && cc -shared -fPIC -o libouter.so outer.c -L. -linner '-Wl,-rpath,$ORIGIN' || exit 1
cp libinner.so libouter.so "$d/lib" && ln -s libouter.so "$d/lib/link.so" && ln -s "$d/lib/libouter.so" "$d/ve/deep/absolute.so"
cd / && rm -r "$work"
python3 - "$d" <<'X'
import ctypes, os, sys
d = sys.argv[1]
print(ctypes.CDLL(d + "/lib/libouter.so").eight(), ctypes.CDLL(d + "/lib/link.so").eight(), ctypes.CDLL(d + "/ve/deep/absolute.so").eight())
os.chdir(d + "/lib")
print(ctypes.CDLL("./libinner.so").seven())
for bad in ("/lib/missing.so", "/lib"):
    try: ctypes.CDLL(d + bad)
    except OSError as e: print("refused")
print(ctypes.CDLL("libm.so.6").abs(-3), ctypes.CDLL(None).abs(-4))
X
