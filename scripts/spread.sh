# Medians and ranges of repeated runs, for scripts that source this file. A ratio with its range shows whether a gain
# exceeds the differences between runs.

# spread: prints the median and the range of the numbers on standard input, such as `2.43 (2.31 to 2.50)`.
spread() {
    sort -n | awk '{ all[NR] = $1 } END { if (NR) printf "%.2f (%.2f to %.2f)\n", all[int((NR + 1) / 2)], all[1], all[NR]; else exit 1 }'
}

# ratios FILE OTHER: prints the ratio of each line of FILE to the line of OTHER with the same number, which is from the
# same round.
ratios() { paste "$1" "$2" | awk '$2 > 0 { printf "%.4f\n", $1 / $2 }'; }

# gain FILE OTHER: prints the median and the range of the ratios.
gain() { ratios "$1" "$2" | spread; }

# column NUMBER FILE: prints a column of a file.
column() { awk -v number="$1" '{ print $number }' "$2"; }
