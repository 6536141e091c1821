"""DuckDB: a database, and files that it writes and reads."""

import duckdb
import fsspec

from case import EVERYWHERE, Case, main


def save(place):
    with duckdb.connect(f"{place}/data.duckdb") as database:
        database.execute("create table t as select range as id, range * 1.5 as value, 'row ' || range as text from range(50000)")
        database.execute("checkpoint")
        database.execute("update t set value = -1 where id % 7 = 0")
    # Replays what the last connection left in the log.
    with duckdb.connect(f"{place}/data.duckdb") as database:
        database.execute("delete from t where id % 11 = 0")
        database.execute("set temp_directory = ?", [f"{place}/temp"])
        database.execute(f"copy t to '{place}/t.parquet' (format parquet)")
        database.execute(f"copy t to '{place}/t.csv'")


def load(place):
    with duckdb.connect(f"{place}/data.duckdb", read_only=True) as database:
        query = "select count(*), sum(id), sum(value), min(text), max(text) from "
        return [database.execute(query + table).fetchall() for table in ("t", f"'{place}/t.parquet'", f"read_csv('{place}/t.csv')")]


def save_to_url(place):
    fs, path = fsspec.core.url_to_fs(place)
    with duckdb.connect() as database:
        database.register_filesystem(fs)
        prefix = "" if fs.protocol[0] in ("file", "local") else f"{fs.protocol}://"
        database.execute(f"copy (select range as id from range(9999)) to '{prefix}{path}/t.parquet' (format parquet)")


def load_from_url(place):
    fs, path = fsspec.core.url_to_fs(place)
    with duckdb.connect() as database:
        database.register_filesystem(fs)
        prefix = "" if fs.protocol[0] in ("file", "local") else f"{fs.protocol}://"
        return database.execute(f"select count(*), sum(id) from '{prefix}{path}/t.parquet'").fetchall()


if __name__ == "__main__":
    main("duckdb", {"database": Case(save, load), "file system": Case(save_to_url, load_from_url, EVERYWHERE)})
