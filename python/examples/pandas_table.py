"""Write a table of pandas as CSV and Parquet, and read both.

usage: python pandas_table.py [URL]     by default weft:///examples
"""

import sys

import pandas

url = sys.argv[1] if len(sys.argv) > 1 else "weft:///examples"

table = pandas.DataFrame({"rank": range(1000), "seconds": [rank % 7 + 0.5 for rank in range(1000)]})
table.to_csv(f"{url}/times.csv", index=False)
table.to_parquet(f"{url}/times.parquet")

from_csv = pandas.read_csv(f"{url}/times.csv")
from_parquet = pandas.read_parquet(f"{url}/times.parquet", columns=["seconds"])

assert from_csv.equals(table) and from_parquet.equals(table[["seconds"]])
print(f"{len(from_csv)} rows, {from_parquet['seconds'].sum()} seconds")
