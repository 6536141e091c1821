# Redirections of every kind, in the directory $1.
D=$1
echo one > "$D/f"
echo two >> "$D/f"
cat < "$D/f"
while read -r line; do echo "read $line"; done < "$D/f"
{ echo a; echo b; printf 'c%s\n' 1; } > "$D/group"
cat "$D/group"
(cd "$D" && echo sub > sub && ls) | sort
exec 3> "$D/three"
echo first >&3
sh -c 'echo from child >&3'
echo last >&3
exec 3>&-
cat "$D/three"
exec 4< "$D/three"
read -r x <&4; echo "got $x"
cat <&4
exec 4<&-
ls "$D/missing" 2> "$D/err" || wc -l < "$D/err"
{ echo out; echo err >&2; } > "$D/both" 2>&1
cat "$D/both"
cat << END > "$D/here"
here $((1 + 1))
END
cat "$D/here"
echo appended | tee -a "$D/here" > /dev/null
cat "$D/here" "$D/f" | sort -r > "$D/sorted"
cat "$D/sorted"
for i in 1 2 3 4 5; do echo "line $i"; done > "$D/loop"
sort < "$D/loop" | tail -n 2
(echo p1; echo p2) > "$D/par" & wait
cat "$D/par"
env -i /bin/cat "$D/f"
cp /bin/echo "$D/prog" && "$D/prog" a program on the mount
printf '#!/bin/sh\necho script "$@"\n' > "$D/s" && chmod +x "$D/s" && "$D/s" 1 2
cd "$D" && ./s 3 && cat f > g && cmp f g && echo equal
xargs -n 1 echo < f
find . -name 'l*' -exec cat {} \; | wc -l
python3 -c 'print("python to a file")' > py && cat py
python3 -c 'import sys; sys.stdout.write(sys.stdin.read().upper())' < f > upper; cat upper
awk '{ n += length($0) } END { print n }' f
exec > "$D/final"
echo "to the file"
sh -c 'echo child too'
exec > /dev/null
true
