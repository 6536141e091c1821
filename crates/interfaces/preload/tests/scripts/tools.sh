# coreutils and friends in the directory $1; prints their output.
set -e
D=$1
cd "$D"
pwd
mkdir -p a/b/c && ls && ls a && cd a/b && pwd && ls && cd ../.. && pwd
seq 1 20000 > numbers
cp numbers a/copy && cmp numbers a/copy && echo same
wc -c < numbers
cat numbers | tail -n 1
head -c 100 numbers | md5sum
md5sum numbers a/copy
stat -c '%n %s %F %a %h' numbers && stat -c '%n %F %a %h' a
chmod 640 numbers && stat -c %a numbers
touch -d '2001-02-03 04:05:06 UTC' numbers && stat -c %Y numbers
mkdir kept && for i in $(seq 40); do cp -p numbers kept/$i; done && stat -c %Y kept/* | sort | uniq -c && rm -r kept
ln numbers hard && stat -c %h hard && ln -s numbers soft && readlink soft && readlink -f soft
test -L soft && test -f soft && test -d a && test -s numbers && ! test -e missing && echo tests
ls -l soft | sed 's/.* soft/soft/'
mv hard renamed && ls
mv a/copy a/b/c/moved && find . | sort
dd if=/dev/zero of=zeros bs=64k count=10 2>/dev/null && stat -c %s zeros
dd if=numbers of=part bs=1000 skip=3 count=2 conv=notrunc 2>/dev/null && md5sum < part
truncate -s 100 zeros && stat -c %s zeros && truncate -s +50 zeros && stat -c %s zeros
tar cf t.tar numbers a && mkdir x && tar xf t.tar -C x && cmp x/numbers numbers && tar tf t.tar | sort
gzip -k numbers && gunzip -c numbers.gz | cmp - numbers && echo zipped
sort -rn numbers -o sorted && head -n 1 sorted && sort -o sorted -n sorted && cmp sorted numbers
grep -c 99 numbers && grep -rl 19999 . | sort
sed -i 's/^20000$/end/' sorted && tail -n 1 sorted
cp -r a copied && diff -r a copied && echo copied
cp -a soft soft2 && test -L soft2 && echo link
cp --sparse=always zeros sparse && cmp zeros sparse
du -s --apparent-size copied > /dev/null && df . > /dev/null && echo room
split -b 50000 numbers piece. && cat piece.* | cmp - numbers && ls piece.*
tee one two < zeros | wc -c
install -m 600 numbers installed && stat -c %a installed
mktemp -p "$D" tmp.XXXXXX | wc -c > /dev/null
rm tmp.*
cat missing 2>/dev/null || echo "no such file"
rmdir a 2>/dev/null || echo "not empty"
comm -12 one two | wc -c; paste one two | wc -c; join numbers numbers 2>/dev/null | wc -l
rm -r a copied x piece.* && ls -A
cd / && ls "$D" | wc -l && pwd
cd "$D" && rm -rf ./* && ls -A | wc -l
